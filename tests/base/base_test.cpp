#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "base/half.h"
#include "base/queue.h"
#include "base/result.h"
#include "base/rng.h"

namespace sluice {
namespace {

TEST(Half, EveryHalfSurvivesTheRoundTrip) {
  for (uint32_t h = 0; h < 65536; ++h) {
    const float f = half_to_float(uint16_t(h));
    if (std::isnan(f)) EXPECT_TRUE(std::isnan(half_to_float(float_to_half(f))));
    else EXPECT_EQ(float_to_half(f), h);
  }
}

TEST(Half, RoundsToNearestEvenAndSaturatesToInfinity) {
  EXPECT_EQ(float_to_half(1.0f + 0x1p-11f), 0x3C00);          // tie: to even
  EXPECT_EQ(float_to_half(1.0f + 3 * 0x1p-11f), 0x3C02);      // tie: to even, upwards
  EXPECT_EQ(float_to_half(65519.0f), 0x7BFF);
  EXPECT_EQ(float_to_half(65520.0f), 0x7C00);
  EXPECT_EQ(float_to_half(0x1p-25f), 0x0000);                 // half of the smallest subnormal: tie to even
  EXPECT_EQ(float_to_half(1.5f * 0x1p-25f), 0x0001);
}

TEST(Bfloat16, RoundsToNearestEven) {
  EXPECT_EQ(float_to_bf16(1.0f), 0x3F80);
  EXPECT_EQ(float_to_bf16(1.0f + 0x1p-8f), 0x3F80);
  EXPECT_EQ(float_to_bf16(1.0f + 3 * 0x1p-8f), 0x3F82);
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::numeric_limits<float>::quiet_NaN()))));
}

// Known answers of Philox4x32-10 from its authors' test vectors.
TEST(Philox, KnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t f = 0xffffffff;
  EXPECT_EQ(philox4x32({f, f, f, f}, {f, f}), (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(BoundedQueue, RefusesWhenFullAndKeepsTheValue) {
  BoundedQueue<std::unique_ptr<int>> q(1);
  EXPECT_TRUE(q.try_push(std::make_unique<int>(1)));
  auto second = std::make_unique<int>(2);
  EXPECT_FALSE(q.try_push(std::move(second)));
  ASSERT_TRUE(second);
  std::vector<std::unique_ptr<int>> out;
  q.drain(out, std::chrono::microseconds(0));
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(*out[0], 1);
}

TEST(BoundedQueue, ManyProducersLoseNothing) {
  BoundedQueue<int> q(1 << 20);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] { for (int i = 0; i < 10000; ++i) { int v = t * 10000 + i; q.try_push(std::move(v)); } });
  std::vector<int> out;
  while (out.size() < 40000) q.drain(out, std::chrono::milliseconds(10));
  for (auto& t : threads) t.join();
  std::sort(out.begin(), out.end());
  for (int i = 0; i < 40000; ++i) EXPECT_EQ(out[size_t(i)], i);
}

TEST(BoundedQueue, PokeWakesAnEmptyWait) {
  BoundedQueue<int> q(4);
  std::thread waker([&] { q.poke(); });
  std::vector<int> out;
  q.drain(out, std::chrono::seconds(10));  // returns at once, or the test times out
  EXPECT_TRUE(out.empty());
  waker.join();
}

}  // namespace
}  // namespace sluice
