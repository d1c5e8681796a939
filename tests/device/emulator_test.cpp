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
  if (place.thread.x == 0) barrier_init(barrier(), arrivals);
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
        if (place.thread.x == 0) *at(kBox * 2) = 0;
        meet_warp();
        if (place.thread.x == 0) barrier_arrive(barrier(), kBox), copy(0, kBox * 2, rows.map, 0, 0, barrier());
        if (waits) barrier_wait(barrier(), 0);
        else meet_warp();
        (waits ? waited : seen).insert(*at(kBox * 2));
        barrier_wait(barrier(), 0);
      });
  EXPECT_EQ(seen, (std::set<int>{0, 7}));
  EXPECT_EQ(waited, (std::set<int>{7}));
}

TEST(Emulator, AThreadsOwnCopyComesAtAnyTimeUntilItIsWaitedFor) {
  alignas(16) const uint8_t from[16] = {7};
  std::set<int> seen, waited;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed)
    run({1, 1, 32, 4096, seed, {}}, [&] {
      const uint32_t to = address_of(shared()) + place.thread.x * 16;
      copy_begin(to, from, 16);
      copies_commit();
      copy_begin(to + 1024, nullptr, 16);
      copies_commit();
      seen.insert(*at(to));
      copies_wait(1);
      waited.insert(*at(to));
      EXPECT_EQ(*at(to + 1024), 0);
    });
  EXPECT_EQ(seen, (std::set<int>{7, 0xFF}));
  EXPECT_EQ(waited, (std::set<int>{7}));
}

TEST(Emulator, LanesTellEachOther) {
  run({1, 1, 64, 0, 1, {}}, [] {
    const unsigned thread = place.thread.x, lane = thread % 32;
    for (unsigned bits = 1; bits < 32; ++bits) {
      unsigned told;
      std::memcpy(&told, tell(~0u, thread) + (lane ^ bits) * kMostTold, sizeof told);
      ASSERT_EQ(told, thread ^ bits);
    }
    if (lane >= 4) return;  // lanes that have ended are missed by none but these
    for (int i = 0; i < 3; ++i) meet_warp(0xF);
  });
}

TEST(Emulator, AProductReadsUntilItIsWaitedFor) {
  std::set<int> seen;
  for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
    int factor = 1, sum = 0;
    run({1, 1, 32, 4096, seed, {}}, [&] {
      if (place.thread.x) return;
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
  EXPECT_THROW(run({1, 1, 32, 4096, 1, {}}, [] { begin_barrier(2), place.thread.x == 0 ? barrier_arrive(barrier(), 0) : void(), barrier_wait(barrier(), 0); }), std::runtime_error);
  EXPECT_THROW(run({1, 1, 64, 4096, 1, {}}, [] { if (place.thread.x) meet_block(); }), std::runtime_error);
}

TEST(Emulator, WhatIsOutOfPlaceIsAnError) {
  const Rows rows;
  EXPECT_THROW(run({1, 1, 32, 4096, 1, {}}, [] { barrier_arrive(barrier(), 0); }), std::runtime_error) << "no barrier";
  EXPECT_THROW(run({1, 1, 32, 4096, 1, {}}, [] { begin_barrier(1), barrier_arrive(barrier(), 8); }), std::runtime_error) << "32 arrivals for one";
  EXPECT_THROW(run({1, 1, 32, 4096, 1, {}}, [&] { begin_barrier(1), copy(0, 4096 + 0x400, rows.map, 0, 0, barrier()); }), std::runtime_error) << "past the end";
  EXPECT_THROW(run({1, 1, 32, 4096, 1, {}}, [&] { begin_barrier(1), copy(0, kBox * 2, rows.map, 0, 0, barrier()); }), std::runtime_error) << "nobody waits for the copies";
  EXPECT_THROW(run({1, 1, 32, 4096, 1, {}}, [] { shared()[4096] = 1; }), std::runtime_error) << "behind shared memory";
  EXPECT_THROW(run({1, 1, 32, 4096, 1, {}}, [] { copy_begin(address_of(shared()) + 4088, nullptr, 16); }), std::runtime_error) << "a copy to no multiple of its size";
  EXPECT_THROW(run({1, 1, 32, 4096, 1, {}}, [] { meet_warp(place.thread.x < 16 ? ~0u : 0xFFFFu); }), std::runtime_error) << "lanes that are not among those";
  for (uint64_t seed = 1; seed <= 3; ++seed)
    EXPECT_THROW(run({2, 2, 32, 4096, seed, {}}, [] {
                   begin_barrier(1);
                   if (place.block.x == 0) return;
                   for (int i = 0; i < 200; ++i) meet_warp();
                   if (place.thread.x == 0) barrier_arrive(of_block(barrier(), 0), 0);
                 }),
                 std::runtime_error)
        << "a block that has ended";
}

}  // namespace
}  // namespace sluice::emulator
