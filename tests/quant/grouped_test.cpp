// Rounding into grouped integers and FP8, and reading them back.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/fp8.h"
#include "base/rng.h"
#include "quant/grouped.h"

namespace sluice::quant {
namespace {

std::vector<float> normal(size_t n, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> v(n);
  for (float& x : v) x = (float(rng.below(1 << 20)) + float(rng.below(1 << 20)) - float(1 << 20)) / float(1 << 20);
  return v;
}

TEST(Fp8, EveryCodeComesBackAndNeighboursRoundToTheEvenOne) {
  for (int c = 0; c < 256; ++c) {
    const float v = e4m3_to_float(uint8_t(c));
    if (e4m3_is_nan(uint8_t(c))) {
      EXPECT_TRUE(std::isnan(v));
      continue;
    }
    EXPECT_EQ(float_to_e4m3(v), c);
    if (c < 0x7E) {
      const float next = e4m3_to_float(uint8_t(c + 1)), middle = (v + next) / 2;
      EXPECT_EQ(float_to_e4m3(middle), c % 2 == 0 ? c : c + 1);
      EXPECT_EQ(float_to_e4m3(std::nextafter(middle, 0.0f)), c);
      EXPECT_EQ(float_to_e4m3(std::nextafter(middle, 1e9f)), c + 1);
    }
  }
  EXPECT_EQ(e4m3_to_float(0x01), 0x1p-9f);
  EXPECT_EQ(e4m3_to_float(0x7E), 448.0f);
  EXPECT_EQ(float_to_e4m3(1e9f), 0x7E);
  EXPECT_EQ(float_to_e4m3(-std::numeric_limits<float>::infinity()), 0xFE);
  EXPECT_EQ(float_to_e4m3(0x1p-11f), 0);
  EXPECT_EQ(float_to_e4m3(-0.0f), 0x80);
  EXPECT_TRUE(e4m3_is_nan(float_to_e4m3(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Grouped, RoundingIsOffByHalfAStepAtMost) {
  for (int bits = 2; bits <= 8; ++bits)
    for (bool symmetric : {true, false})
      for (int group : {5, 32, 100}) {
        const int rows = 7, cols = 100;
        const std::vector<float> w = normal(size_t(rows * cols), uint64_t(bits));
        const GroupedMatrix m = round_grouped(w.data(), rows, cols, bits, group, symmetric);
        ASSERT_EQ(fault(m), "");
        std::vector<float> back(static_cast<size_t>(cols));
        for (int n = 0; n < rows; ++n) {
          decode_row(m, n, back.data());
          for (int k = 0; k < cols; ++k) {
            const float step = m.scales[size_t(n * m.groups() + k / group)];
            EXPECT_LE(std::abs(back[size_t(k)] - w[size_t(n * cols + k)]), step * 0.505f + 1e-6f) << bits << " bits, group " << group;
          }
        }
      }
}

TEST(Grouped, EmptyAndTinyGroupsStayFinite) {
  std::vector<float> w(64, 0.0f);
  for (size_t i = 32; i < 64; ++i) w[i] = 1e-30f;
  for (bool symmetric : {true, false}) {
    const GroupedMatrix m = round_grouped(w.data(), 1, 64, 4, 32, symmetric);
    EXPECT_EQ(fault(m), "");
    std::vector<float> back(64);
    decode_row(m, 0, back.data());
    for (float v : back) EXPECT_EQ(v, 0.0f);
  }
}

TEST(Grouped, FaultsAreNamed) {
  const std::vector<float> w = normal(64, 3);
  const GroupedMatrix good = round_grouped(w.data(), 2, 32, 4, 32, true);
  GroupedMatrix m = good;
  m.codes[3] = 16;
  EXPECT_NE(fault(m).find("codes"), std::string::npos);
  m = good;
  m.scales[0] = 0.1f;  // no half
  EXPECT_NE(fault(m).find("scales"), std::string::npos);
  m = good;
  m.group_of.assign(32, 1);
  EXPECT_NE(fault(m).find("group_of"), std::string::npos);
}

TEST(Grouped, Fp8IsOffByASixteenthAtMost) {
  const int rows = 130, cols = 200;
  const std::vector<float> w = normal(size_t(rows * cols), 4);
  for (const auto& [block_rows, block_cols] : {std::pair{1, cols}, {rows, cols}, {128, 128}}) {
    const Fp8Matrix m = round_fp8(w.data(), rows, cols, block_rows, block_cols);
    ASSERT_EQ(fault(m), "");
    std::vector<float> back(static_cast<size_t>(cols));
    for (int n = 0; n < rows; ++n) {
      decode_row(m, n, back.data());
      for (int k = 0; k < cols; ++k) {
        const float want = w[size_t(n * cols + k)];
        EXPECT_LE(std::abs(back[size_t(k)] - want), std::abs(want) / 16 * 1.001f + m.scales[0] * 0x1p-9f);
      }
    }
  }
}

}  // namespace
}  // namespace sluice::quant
