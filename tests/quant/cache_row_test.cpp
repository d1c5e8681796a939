#include "quant/cache_row.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/rng.h"

namespace sluice::quant {
namespace {

std::vector<float> kept(CacheElement e, std::vector<float> x) {
  std::vector<uint8_t> row(cache_row_bytes(e, int(x.size())) + 4, 0xA7);
  encode_cache_row(e, x.data(), int(x.size()), row.data());
  for (size_t i = row.size() - 4; i < row.size(); ++i) EXPECT_EQ(row[i], 0xA7) << "written past the row";
  decode_cache_row(e, row.data(), int(x.size()), x.data());
  return x;
}

std::vector<float> row_of(uint64_t seed, int dim, float scale) {
  Rng rng(seed);
  std::vector<float> x(static_cast<size_t>(dim));
  for (float& v : x) v = rng.normalish() * scale;
  return x;
}

// Half a step of the code, for the largest of scales that a row may have (they are rounded up by at most a part in 128).
TEST(CacheRow, ErrorsAreThoseOfTheCodes) {
  for (int dim : {8, 40, 64, 80, 128, 256})
    for (float scale : {1e-6f, 0.01f, 1.0f, 3e4f}) {
      const std::vector<float> x = row_of(uint64_t(dim), dim, scale);
      float largest = 0;
      for (float v : x) largest = std::max(largest, std::fabs(v));
      const std::vector<float> fp8 = kept(CacheElement::kFp8, x), int8 = kept(CacheElement::kInt8, x), int4 = kept(CacheElement::kInt4, x);
      for (int i = 0; i < dim; ++i) {
        EXPECT_LE(std::fabs(fp8[size_t(i)] - x[size_t(i)]), std::max(std::fabs(x[size_t(i)]) / 16, largest / 448 * 0x1p-10f * 1.01f) * 1.001f) << i;
        EXPECT_LE(std::fabs(int8[size_t(i)] - x[size_t(i)]), largest / 127 * 0.51f) << i;
        const int group = i / kCacheGroup * kCacheGroup, end = std::min(dim, group + kCacheGroup);
        const auto [least, most] = std::minmax_element(x.begin() + group, x.begin() + end);
        const float range = *most - *least + std::fabs(*least) / 128;
        EXPECT_LE(std::fabs(int4[size_t(i)] - x[size_t(i)]), range / 15 * 0.51f) << i;
      }
    }
}

TEST(CacheRow, EveryCodeOfAWholeRangeComesBack) {
  std::vector<float> x(256);
  for (int i = 0; i < 255; ++i) x[size_t(i)] = float(i - 127);
  EXPECT_EQ(kept(CacheElement::kInt8, x), x);
  std::vector<float> eights;
  for (int m = 0; m < 8; ++m)
    for (int e = -6; e <= 8; ++e)
      if (e < 8 || m < 7) eights.push_back(std::ldexp(1 + float(m) / 8, e)), eights.push_back(-eights.back());
  for (int m = 1; m < 8; ++m) eights.push_back(std::ldexp(float(m), -9));
  eights.resize(256);
  EXPECT_EQ(kept(CacheElement::kFp8, eights), eights);
  std::vector<float> sixteen;
  for (int i = 0; i < 32; ++i) sixteen.push_back(float(i % 16) - 4);
  EXPECT_EQ(kept(CacheElement::kInt4, sixteen), sixteen);
}

TEST(CacheRow, ZerosStayAndWhatIsNotFiniteSpoilsItsOwnRow) {
  for (CacheElement e : kCacheElements) {
    EXPECT_EQ(kept(e, std::vector<float>(64, 0.0f)), std::vector<float>(64, 0.0f));
    if (is_float(e)) continue;
    for (float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
      std::vector<float> x(64, 1.0f);
      x[40] = bad;
      EXPECT_TRUE(std::isnan(kept(e, x)[e == CacheElement::kInt4 ? 41 : 0])) << cache_element_name(e);
    }
  }
}

// Keys of 16 tokens, as they are once their group is closed.
std::vector<float> closed(const std::vector<float>& x) {
  const int dim = int(x.size()) / kKeyGroup;
  const size_t row = cache_row_bytes(CacheElement::kInt8, dim);
  std::vector<uint8_t> rows(open_group_bytes(dim)), group(closed_group_bytes(dim) + 4, 0xA7);
  for (size_t t = 0; t < kKeyGroup; ++t) encode_cache_row(CacheElement::kInt8, &x[t * size_t(dim)], dim, &rows[t * row]);
  close_key_group(rows.data(), dim, group.data());
  for (size_t i = group.size() - 4; i < group.size(); ++i) EXPECT_EQ(group[i], 0xA7) << "written past the group";
  std::vector<float> y(x.size());
  for (int t = 0; t < kKeyGroup; ++t) decode_grouped_key(group.data(), t, dim, &y[size_t(t) * size_t(dim)]);
  return y;
}

// A dimension is off by half a step of its own range, whatever the others' sizes, and by what the row of int8 was off.
TEST(KeyGroup, ErrorsAreOfEachDimensionsOwnRange) {
  for (int dim : {8, 40, 64, 128, 256})
    for (float scale : {1e-6f, 1.0f, 3e4f}) {
      std::vector<float> x = row_of(uint64_t(dim) + 7, dim * kKeyGroup, scale);
      for (int t = 0; t < kKeyGroup; ++t) {
        x[size_t(t * dim + 1)] *= 20;
        x[size_t(t * dim + 2)] += 15 * scale;
        x[size_t(t * dim + 3)] = -9 * scale;
      }
      const std::vector<float> y = closed(x);
      float largest = 0;
      for (float v : x) largest = std::max(largest, std::fabs(v));
      for (int d = 0; d < dim; ++d) {
        float least = x[size_t(d)], most = least, off = 0;
        for (size_t i = size_t(d); i < x.size(); i += size_t(dim)) {
          least = std::min(least, x[i]);
          most = std::max(most, x[i]);
          off = std::max(off, std::fabs(y[i] - x[i]));
        }
        // The minimum falls by at most a 127th of the largest, the scale rises by a 255th of the widest.
        EXPECT_LE(off, (most - least + largest / 127 + 2 * largest / 255) / 30 + largest / 127 * 0.6f) << dim << " " << d;
      }
    }
}

TEST(KeyGroup, ZerosStayAndWhatIsNotFiniteSpoilsItsOwnGroup) {
  EXPECT_EQ(closed(std::vector<float>(64 * kKeyGroup, 0.0f)), std::vector<float>(64 * kKeyGroup, 0.0f));
  std::vector<float> x(64 * kKeyGroup, 1.0f);
  x[700] = std::numeric_limits<float>::infinity();
  for (float v : closed(x)) EXPECT_TRUE(std::isnan(v));
}

TEST(CacheRow, MixingKeepsProductsAndSpreadsOutliers) {
  for (int dim : {8, 40, 64, 96, 256}) {
    std::vector<float> a = row_of(1, dim, 1), b = row_of(2, dim, 1);
    a[3] = 100;
    double before = 0, after = 0;
    for (int i = 0; i < dim; ++i) before += double(a[size_t(i)]) * b[size_t(i)];
    mix_dims(a.data(), dim);
    mix_dims(b.data(), dim);
    for (int i = 0; i < dim; ++i) after += double(a[size_t(i)]) * b[size_t(i)];
    EXPECT_NEAR(after, before, 1e-3);
    for (float v : a) EXPECT_LT(std::fabs(v), 100 / std::sqrt(double(mixed_block(dim))) + 5);
    const float kept_at = a[0];
    mix_dims(a.data(), dim);
    EXPECT_NEAR(a[3], 100, 1e-3) << "twice is none";
    EXPECT_NE(kept_at, a[0]);
  }
}

}  // namespace
}  // namespace sluice::quant
