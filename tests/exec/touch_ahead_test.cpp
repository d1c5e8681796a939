// Memory of a cache is there before its blocks are used.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <vector>

#include "exec/touch_ahead.h"
#include "tensor/buffer.h"

namespace sluice::exec {
namespace {

size_t resident_bytes(const Buffer& b) {
  const size_t page = size_t(::sysconf(_SC_PAGESIZE)), pages = (b.bytes() + page - 1) / page;
  std::vector<unsigned char> there(pages);
  EXPECT_EQ(::mincore(b.data(), b.bytes(), there.data()), 0);
  size_t sum = 0;
  for (const unsigned char p : there) sum += p & 1 ? page : 0;
  return sum;
}

bool populates() {
  Buffer b(4096);
  return ::madvise(b.data(), b.bytes(), 23) == 0;
}

template <class Done>
bool soon(Done done) {
  for (int i = 0; i < 2000 && !done(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  return done();
}

TEST(TouchAhead, KeepsAheadOfWhatIsUsedAndLeavesTheRest) {
  const bool heard = populates();
  constexpr size_t kStride = size_t{128} << 10, kAhead = size_t{32} << 20;
  constexpr int kBlocks = 400;  // 100 MiB of both parts
  Buffer keys(kStride * kBlocks), values(kStride * kBlocks);
  TouchAhead touch({{keys.data(), kStride}, {values.data(), kStride}}, kBlocks, kAhead);
  const auto both = [&] { return resident_bytes(keys) + resident_bytes(values); };
  const size_t at_first = kAhead, huge = size_t{4} << 20;  // pages of 2 MiB at the end of either
  if (heard) {
    ASSERT_TRUE(soon([&] { return both() >= at_first; }));
  }
  touch.reach(10);  // far from the end of what is touched
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LT(both(), at_first + 2 * kStride + huge);
  touch.reach(120);
  if (heard) {
    ASSERT_TRUE(soon([&] { return both() >= at_first + 2 * 120 * kStride; }));
  }
  EXPECT_LT(both(), at_first + 2 * 121 * kStride + huge);
  touch.reach(kBlocks - 1);
  if (heard) {
    ASSERT_TRUE(soon([&] { return both() == keys.bytes() + values.bytes(); }));
  }
}

TEST(TouchAhead, WhatIsWrittenMeanwhileStays) {
  constexpr size_t kStride = size_t{64} << 10;
  constexpr int kBlocks = 512;
  Buffer memory(kStride * kBlocks);
  for (size_t k = 0; k < memory.bytes(); k += 4096) memory.as<uint8_t>()[k] = uint8_t(k / 4096 + 1);
  {
    TouchAhead touch({{memory.data(), kStride}}, kBlocks);
    touch.reach(kBlocks - 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }  // stops in the middle, too
  for (size_t k = 0; k < memory.bytes(); k += 4096) ASSERT_EQ(memory.as<uint8_t>()[k], uint8_t(k / 4096 + 1));
}

}  // namespace
}  // namespace sluice::exec
