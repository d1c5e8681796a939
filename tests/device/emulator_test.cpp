// The emulator finds what it is there to find: a check that cannot fail would be worse than none.
#include <gtest/gtest.h>

#include <set>
#include <stdexcept>
#include <vector>

#include "tests/device/emulator.h"

namespace sluice::emulator {
namespace {

constexpr int kSeeds = 40;
constexpr uint32_t kBox = 1024;  // a place in shared memory for it, and behind it a barrier

// A barrier at the beginning of each block's shared memory.
uint32_t barrier() { return address_of(shared()); }
void begin_barrier(int arrivals) {
  if (place().thread == 0) barrier_init(barrier(), arrivals);
  meet_block();
  cluster_wait();
}

struct Rows {
  std::vector<uint16_t> data = std::vector<uint16_t>(8 * 64, 7);
  TensorMap map{reinterpret_cast<const uint8_t*>(data.data()), 8, 64, 64, 8};
};

TEST(Emulator, ACopyComesAtAnyTimeUntilItIsWaitedFor) {
  const Rows rows;
  std::set<int> seen, waited;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed)
    for (const bool waits : {false, true})
      run({1, 1, 32, 4096, seed, {}}, [&] {
        begin_barrier(1);
        if (place().thread == 0) *at(kBox * 2) = 0;
        meet_warp();
        if (place().thread == 0) barrier_arrive(barrier(), kBox), copy(0, kBox * 2, rows.map, 0, 0, barrier());
        if (waits) barrier_wait(barrier(), 0);
        else meet_warp();
        (waits ? waited : seen).insert(*at(kBox * 2));
        barrier_wait(barrier(), 0);
      });
  EXPECT_EQ(seen, (std::set<int>{0, 7}));
  EXPECT_EQ(waited, (std::set<int>{7}));
}

TEST(Emulator, AProductReadsUntilItIsWaitedFor) {
  std::set<int> seen;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    int factor = 1, sum = 0;
    run({1, 1, 32, 4096, seed, {}}, [&] {
      if (place().thread) return;
      product_begin([&] { sum = factor; });
      products_commit();
      factor = 2;
      products_wait(0);
    });
    seen.insert(sum);
  }
  EXPECT_EQ(seen, (std::set<int>{1, 2}));
}

TEST(Emulator, TheKernelAheadEndsAtAnyTime) {
  std::set<int> seen, waited;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    int written = 0;
    run({1, 1, 32, 4096, seed, [&] { written = 1; }}, [&] {
      meet_warp();
      seen.insert(written);
      wait_for_ahead();
      waited.insert(written);
    });
  }
  EXPECT_EQ(seen, (std::set<int>{0, 1}));
  EXPECT_EQ(waited, (std::set<int>{1}));
}

TEST(Emulator, WhatCannotGoOnIsAnError) {
  EXPECT_THROW(run({1, 1, 32, 4096, 1, {}}, [] { begin_barrier(2), place().thread == 0 ? barrier_arrive(barrier(), 0) : void(), barrier_wait(barrier(), 0); }), std::runtime_error);
  EXPECT_THROW(run({1, 1, 64, 4096, 1, {}}, [] { if (place().thread) meet_block(); }), std::runtime_error);
}

TEST(Emulator, WhatIsOutOfPlaceIsAnError) {
  const Rows rows;
  EXPECT_THROW(run({1, 1, 32, 4096, 1, {}}, [] { barrier_arrive(barrier(), 0); }), std::runtime_error) << "no barrier";
  EXPECT_THROW(run({1, 1, 32, 4096, 1, {}}, [] { begin_barrier(1), barrier_arrive(barrier(), 8); }), std::runtime_error) << "32 arrivals for one";
  EXPECT_THROW(run({1, 1, 32, 4096, 1, {}}, [&] { begin_barrier(1), copy(0, 4096 + 0x400, rows.map, 0, 0, barrier()); }), std::runtime_error) << "past the end";
  EXPECT_THROW(run({1, 1, 32, 4096, 1, {}}, [&] { begin_barrier(1), copy(0, kBox * 2, rows.map, 0, 0, barrier()); }), std::runtime_error) << "nobody waits for the copies";
  for (uint64_t seed = 1; seed <= 3; ++seed)
    EXPECT_THROW(run({2, 2, 32, 4096, seed, {}}, [] {
                   begin_barrier(1);
                   if (place().block == 0) return;
                   for (int i = 0; i < 200; ++i) meet_warp();
                   if (place().thread == 0) barrier_arrive(of_block(barrier(), 0), 0);
                 }),
                 std::runtime_error)
        << "a block that has ended";
}

}  // namespace
}  // namespace sluice::emulator
