// The encoders that search: what they must never be worse than, and inputs that try them.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/half.h"
#include "base/rng.h"
#include "quant/fit.h"
#include "quant/search/fit_kernels.h"

namespace sluice::quant {
namespace {

constexpr size_t kRows = 6, kCols = 512;

std::vector<float> heavy_tailed(uint64_t seed, size_t n, float deviation) {
  Rng rng(seed, 0);
  std::vector<float> x(n);
  for (float& v : x) {
    const float a = rng.normalish();
    v = deviation * a * (1 + 0.3f * a * a);
  }
  return x;
}

double weighted_error(const std::vector<float>& x, const std::vector<float>& y, const std::vector<float>& importance) {
  double e = 0;
  for (size_t i = 0; i < x.size(); ++i) e += double(importance.empty() ? 1 : importance[i % kCols]) * (x[i] - y[i]) * (x[i] - y[i]);
  return e;
}

std::vector<const WeightFormat*> quantised() {
  std::vector<const WeightFormat*> list;
  for (const WeightFormat* f : formats_table())
    if (f->shape) list.push_back(f);
  return list;
}

std::vector<float> decoded(const WeightFormat& f, const std::vector<uint8_t>& bytes, size_t n) {
  std::vector<float> y(n);
  f.decode(bytes.data(), y.data(), n);
  return y;
}

TEST(Fit, EveryQuantisedFormatCanBeWritten) { EXPECT_EQ(quantised().size(), 12u); }

// A choice of codes survives its way into bytes and back: pack and decode are of one layout.
TEST(Fit, PackedCodesDecodeToTheirValues) {
  Rng rng(3, 0);
  for (const WeightFormat* f : quantised()) {
    const BlockShape& s = *f->shape;
    for (int round = 0; round < 20; ++round) {
      BlockCodes c;
      c.d = half_to_float(float_to_half(rng.normalish()));
      c.m = s.has_offset ? half_to_float(float_to_half(rng.normalish())) : 0;
      const auto any = [&](int lo, int hi) { return lo + int(rng.next_u32() % uint32_t(hi - lo + 1)); };
      for (int g = 0; g < s.groups(); ++g) {
        c.scale[g] = int8_t(any(s.min_scale, s.max_scale));
        c.offset[g] = uint8_t(s.integer_scales() ? any(0, s.max_offset) : 1);
      }
      for (int i = 0; i < s.elements; ++i) c.level[i] = int8_t(any(s.min_level, s.max_level));
      std::vector<uint8_t> bytes(size_t(f->block_bytes), 0xAA);
      f->pack(c, bytes.data());
      const std::vector<float> y = decoded(*f, bytes, size_t(s.elements));
      for (int i = 0; i < s.elements; ++i)
        ASSERT_EQ(y[size_t(i)], scale_of(s, c, i / s.group) * s.level_value(c.level[i]) + offset_of(s, c, i / s.group)) << f->name << " element " << i;
    }
  }
}

// Least error is what fit is for.
TEST(Fit, SearchBeatsPlainRounding) {
  const std::vector<float> ones(kCols, 1.0f), x = heavy_tailed(1, kRows * kCols, 0.02f);
  std::vector<float> importance(kCols);
  Rng rng(2, 0);
  for (float& v : importance) v = std::exp(rng.normalish() * 1.5f);
  for (const WeightFormat* f : quantised()) {
    std::vector<uint8_t> plain(kRows * row_bytes(*f, kCols)), searched(plain.size()), weighted(plain.size());
    f->encode(x.data(), plain.data(), x.size());
    fit(*f, x.data(), ones.data(), searched.data(), kRows, kCols);
    fit(*f, x.data(), importance.data(), weighted.data(), kRows, kCols);
    const auto yp = decoded(*f, plain, x.size()), ys = decoded(*f, searched, x.size()), yw = decoded(*f, weighted, x.size());
    EXPECT_LT(weighted_error(x, ys, {}), 0.95 * weighted_error(x, yp, {})) << f->name;
    EXPECT_LT(weighted_error(x, yw, importance), 0.9 * weighted_error(x, ys, importance)) << f->name;
  }
}

// Where nothing is known of the inputs, large weights come out nearer than where all are known to count alike.
TEST(Fit, WithoutImportanceLargeWeightsCountMore) {
  const std::vector<float> ones(kCols, 1.0f), x = heavy_tailed(6, kRows * kCols, 0.02f);
  for (const WeightFormat* f : quantised()) {
    if (f->type == WeightType::kQ8_0) continue;  // its scale is all but given by the largest
    std::vector<uint8_t> alike(kRows * row_bytes(*f, kCols)), unknown(alike.size());
    fit(*f, x.data(), ones.data(), alike.data(), kRows, kCols);
    fit(*f, x.data(), nullptr, unknown.data(), kRows, kCols);
    const auto a = decoded(*f, alike, x.size()), u = decoded(*f, unknown, x.size());
    double large_alike = 0, large_unknown = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      if (std::fabs(x[i]) < 0.05f) continue;
      large_alike += double(x[i] - a[i]) * (x[i] - a[i]);
      large_unknown += double(x[i] - u[i]) * (x[i] - u[i]);
    }
    EXPECT_LT(large_unknown, large_alike) << f->name;
  }
}

TEST(Fit, InstructionSetsGiveTheSameCodes) {
  const FitKernels *base = fit_kernels_of("base"), *avx2 = fit_kernels_of("avx2");
  ASSERT_TRUE(base);
  EXPECT_EQ(fit_kernels_of("mmx"), nullptr);
  if (!avx2) GTEST_SKIP() << "this machine has no AVX2";
  const std::vector<float> x = heavy_tailed(5, 256 * 8, 0.02f), w(256 * 8, 1.0f);
  for (const WeightFormat* f : quantised()) {
    const BlockShape& s = *f->shape;
    for (int b = 0; b < 8; ++b) {
      BlockCodes one[kLanes], other[kLanes];
      for (auto [kernels, out] : {std::pair(base, one), std::pair(avx2, other)}) {
        if (s.integer_scales()) kernels->super(s, &x[size_t(b) * 256], w.data(), out[0]);
        else kernels->simple(s, &x[size_t(b) * 256], w.data(), kLanes, out);
      }
      for (int l = 0; l < (s.integer_scales() ? 1 : kLanes); ++l) {
        std::vector<uint8_t> a(size_t(f->block_bytes)), c(a.size());
        f->pack(one[l], a.data());
        f->pack(other[l], c.data());
        EXPECT_EQ(a, c) << f->name << " block " << b;
      }
    }
  }
}

// How many blocks stand in one call must not matter, nor the size of importances.
TEST(Fit, RowsAreIndependent) {
  const std::vector<float> x = heavy_tailed(9, kRows * kCols, 0.1f);
  std::vector<float> importance(kCols), larger(kCols);
  for (size_t k = 0; k < kCols; ++k) importance[k] = float(1 + k % 7), larger[k] = importance[k] * 1024;
  for (const WeightFormat* f : quantised()) {
    const size_t stride = row_bytes(*f, kCols);
    std::vector<uint8_t> all(kRows * stride), each(kRows * stride), scaled(kRows * stride);
    fit(*f, x.data(), importance.data(), all.data(), kRows, kCols);
    fit(*f, x.data(), larger.data(), scaled.data(), kRows, kCols);
    for (size_t r = 0; r < kRows; ++r) fit(*f, &x[r * kCols], importance.data(), &each[r * stride], 1, kCols);
    EXPECT_EQ(all, each) << f->name;
    EXPECT_EQ(all, scaled) << f->name;
  }
}

TEST(Fit, ExtremesStayFinite) {
  const float huge = kLargestHalf, denormal = std::numeric_limits<float>::denorm_min(), tiny = 1e-7f;
  std::vector<std::vector<float>> cases(8, std::vector<float>(256));
  for (size_t i = 0; i < 256; ++i) {
    cases[1][i] = i % 3 ? huge : -huge;
    cases[2][i] = denormal * float(i);
    cases[3][i] = i == 200 ? huge : tiny;
    cases[4][i] = -0.5f;
    cases[5][i] = i % 2 ? tiny : -tiny;
    cases[6][i] = 0.25f + 1e-6f * float(i);  // far from zero beside its spread
    cases[7][i] = -0.0f;
  }
  const std::vector<float> none(256, 0.0f);  // importances that say nothing
  for (const WeightFormat* f : quantised())
    for (size_t c = 0; c < cases.size(); ++c)
      for (const float* importance : {static_cast<const float*>(nullptr), none.data()}) {
        std::vector<uint8_t> bytes(row_bytes(*f, 256));
        fit(*f, cases[c].data(), importance, bytes.data(), 1, 256);
        const auto y = decoded(*f, bytes, 256);
        for (size_t i = 0; i < 256; ++i) {
          ASSERT_TRUE(std::isfinite(y[i])) << f->name << " case " << c;
          if (c == 0 || c == 2 || c == 7) {
            ASSERT_EQ(y[i], 0) << f->name << " case " << c;
          }
          if (c == 4) {
            ASSERT_NEAR(y[i], -0.5f, 0.002f) << f->name;
          }
        }
      }
}

TEST(Fit, NamesTheFirstValueThatCannotBeHeld) {
  std::vector<float> x(64, 1.0f);
  EXPECT_EQ(first_unfit(x.data(), x.size()), 64u);
  for (float bad : {NAN, INFINITY, -INFINITY, 65505.0f}) {
    x[37] = bad;
    EXPECT_EQ(first_unfit(x.data(), x.size()), 37u);
  }
}

}  // namespace
}  // namespace sluice::quant
