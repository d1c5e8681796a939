// Rounding with error feedback on made problems: inputs whose columns go together, as those of real layers do.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/rng.h"
#include "quant/calibrate/error_feedback.h"
#include "quant/calibrate/grouped_fit.h"
#include "quant/fit.h"
#include "quant/search/fit_kernels.h"
#include "made_layer.h"

namespace sluice::quant {
namespace {

struct Problem : MadeLayer {
  std::vector<float> x = inputs();

  explicit Problem(uint64_t seed, int columns = 256) : MadeLayer(seed, 24, columns, 400) {}
  Hessian hessian() const {
    Hessian h(cols);
    h.add(x.data(), tokens / 2, serial);
    h.add(x.data() + size_t(tokens / 2) * size_t(cols), tokens - tokens / 2, serial);
    return h;
  }
  double output_error(const std::vector<float>& y) const { return MadeLayer::output_error(y, x); }
};

std::vector<float> decoded(const GroupedMatrix& m) {
  std::vector<float> y(size_t(m.rows) * size_t(m.cols));
  for (int n = 0; n < m.rows; ++n) decode_row(m, n, &y[size_t(n) * size_t(m.cols)]);
  return y;
}

TEST(Hessian, IsTheMeanOfProducts) {
  const Problem p(1, 70);  // no whole number of tiles
  const Hessian h = p.hessian();
  for (auto [i, j] : {std::pair(0, 0), std::pair(3, 69), std::pair(69, 3), std::pair(64, 64), std::pair(65, 12)}) {
    double sum = 0;
    for (int t = 0; t < p.tokens; ++t) sum += double(p.x[size_t(t * 70 + i)]) * p.x[size_t(t * 70 + j)];
    EXPECT_NEAR(h.at(i, j), sum / p.tokens, 1e-3 * std::sqrt(double(h.at(i, i)) * h.at(j, j))) << i << " " << j;
  }
  EXPECT_EQ(h.rows(), 400u);
  EXPECT_EQ(h.diagonal()[5], h.at(5, 5));
}

TEST(Factor, SquaresToTheDampedMatrix) {
  const Problem p(2, 150);
  const Hessian h = p.hessian();
  for (bool act_order : {false, true}) {
    auto f = factorize(h, {act_order, 0.01f}, serial);
    ASSERT_TRUE(f.ok()) << f.error().message;
    double mean = 0;
    for (float d : h.diagonal()) mean += d / 150;
    for (auto [i, j] : {std::pair(0, 0), std::pair(149, 149), std::pair(10, 120), std::pair(63, 64)}) {
      double sum = 0;
      for (int k = 0; k <= std::min(i, j); ++k) sum += double(f->upper[size_t(k * 150 + i)]) * f->upper[size_t(k * 150 + j)];
      const double wanted = h.at(f->column_at[size_t(i)], f->column_at[size_t(j)]) + (i == j ? 0.01 * mean : 0);
      EXPECT_NEAR(sum, wanted, 1e-3 * mean) << i << " " << j;
    }
    // The last entry is rounded first: the column of the largest inputs, or column 0.
    const auto d = h.diagonal();
    EXPECT_EQ(f->column_at.back(), act_order ? int(std::max_element(d.begin(), d.end()) - d.begin()) : 0);
  }
}

TEST(Factor, InputsOfNoRankAndNoInputsAreDamped) {
  Hessian flat(64);
  const std::vector<float> row(64, 1.0f);
  flat.add(row.data(), 1, serial);
  EXPECT_TRUE(factorize(flat, {}, serial).ok());
  EXPECT_TRUE(factorize(Hessian(64), {}, serial).ok());
  Hessian bad(64);
  std::vector<float> rows(64, 1.0f);
  rows[7] = std::numeric_limits<float>::quiet_NaN();
  bad.add(rows.data(), 1, serial);
  EXPECT_FALSE(factorize(bad, {}, serial).ok());
}

// Columns that have nothing to do with each other: feedback has nothing to say, and every weight goes to its nearest level.
TEST(Feedback, OfIndependentColumnsIsPlainRounding) {
  const Problem p(3);
  Hessian h(p.cols);
  for (int k = 0; k < p.cols; ++k) {
    std::vector<float> row(size_t(p.cols), 0.0f);
    row[size_t(k)] = 1;
    h.add(row.data(), 1, serial);
  }
  auto f = factorize(h, {}, serial);
  ASSERT_TRUE(f.ok());
  for (const WeightFormat* format : formats_table()) {
    if (!format->shape) continue;
    const std::vector<float> ones(size_t(p.cols), 1.0f);
    std::vector<uint8_t> with(size_t(p.rows) * row_bytes(*format, size_t(p.cols))), without(with.size());
    feedback_rows(*format, *f, p.w.data(), ones, p.rows, with.data());
    fit(*format, p.w.data(), ones.data(), without.data(), size_t(p.rows), size_t(p.cols));
    std::vector<float> a(p.w.size()), b(p.w.size());
    format->decode(with.data(), a.data(), a.size());
    format->decode(without.data(), b.data(), b.size());
    EXPECT_NEAR(p.output_error(a) / p.output_error(b), 1, 1e-3) << format->name;
  }
}

TEST(Feedback, OutputsOfEveryFormatComeNearerThanByRoundingAlone) {
  const Problem p(4);
  const Hessian h = p.hessian();
  auto f = factorize(h, {}, serial);
  ASSERT_TRUE(f.ok());
  for (const WeightFormat* format : formats_table()) {
    if (!format->shape) continue;
    std::vector<uint8_t> with(size_t(p.rows) * row_bytes(*format, size_t(p.cols))), without(with.size());
    const std::vector<float> importance = h.diagonal();
    feedback_rows(*format, *f, p.w.data(), importance, p.rows, with.data());
    fit(*format, p.w.data(), importance.data(), without.data(), size_t(p.rows), size_t(p.cols));
    std::vector<float> a(p.w.size()), b(p.w.size());
    format->decode(with.data(), a.data(), a.size());
    format->decode(without.data(), b.data(), b.size());
    EXPECT_LT(p.output_error(a), 0.75 * p.output_error(b)) << format->name;
  }
}

TEST(Gptq, BeatsRoundingForAllBitsAndOrders) {
  const Problem p(5);
  const Hessian h = p.hessian();
  for (bool act_order : {false, true}) {
    auto f = factorize(h, {act_order, 0.01f}, serial);
    ASSERT_TRUE(f.ok());
    for (int bits : {2, 3, 4, 8})
      for (bool symmetric : {false, true}) {
        auto m = gptq(p.w.data(), p.rows, *f, {bits, 64, symmetric}, serial);
        ASSERT_TRUE(m.ok()) << m.error().message;
        EXPECT_EQ(fault(*m), "");
        EXPECT_EQ(m->group_of.empty(), !act_order);
        for (uint8_t z : m->zeros) ASSERT_TRUE(symmetric ? z == 1 << (bits - 1) : z >= 1);
        const GroupedMatrix plain = round_grouped(p.w.data(), p.rows, p.cols, bits, 64, symmetric);
        EXPECT_LT(p.output_error(decoded(*m)), 0.6 * p.output_error(decoded(plain))) << bits << symmetric << act_order;
      }
  }
}

// Scales are those of rounding, and where columns have nothing to do with each other so are the codes; else the outputs come nearer.
TEST(Feedback, OfFp8) {
  const auto decode = [](const Fp8Matrix& m) {
    std::vector<float> y(size_t(m.rows) * size_t(m.cols));
    for (int n = 0; n < m.rows; ++n) decode_row(m, n, &y[size_t(n) * size_t(m.cols)]);
    return y;
  };
  Problem p(7, 200);
  p.rows = 21;
  Hessian apart(p.cols);
  std::vector<float> row(size_t(p.cols));
  for (int k = 0; k < p.cols; ++k) {
    std::fill(row.begin(), row.end(), 0.0f);
    row[size_t(k)] = 1;
    apart.add(row.data(), 1, serial);
  }
  std::fill(p.w.begin() + 3 * p.cols, p.w.begin() + 4 * p.cols, 0.0f);  // a row of nothing
  p.w[5] = 30;                                                          // the others of its row are subnormal
  auto independent = factorize(apart, {}, serial), together = factorize(p.hessian(), {}, serial);
  ASSERT_TRUE(independent.ok() && together.ok());
  for (const auto& [block_rows, block_cols] : {std::pair(1, p.cols), std::pair(p.rows, p.cols), std::pair(16, 64), std::pair(128, 128)}) {
    const Fp8Matrix plain = round_fp8(p.w.data(), p.rows, p.cols, block_rows, block_cols);
    const Fp8Matrix same = feedback_fp8(p.w.data(), p.rows, block_rows, block_cols, *independent, serial);
    EXPECT_EQ(same.scales, plain.scales);
    EXPECT_EQ(decode(same), decode(plain));
    const Fp8Matrix nearer = feedback_fp8(p.w.data(), p.rows, block_rows, block_cols, *together, serial);
    EXPECT_EQ(fault(nearer), "");
    EXPECT_LT(p.output_error(decode(nearer)), 0.7 * p.output_error(decode(plain))) << block_rows << "x" << block_cols;
  }
}

// Groups as they stand, their scales and zeros fitted before: outputs come nearer, whatever the inputs are divided by meanwhile.
TEST(Gptq, CodesAloneMakeGoodWhatRoundingCost) {
  const Problem p(9);
  const Hessian h = p.hessian();
  const std::vector<float> importance = h.diagonal();
  std::vector<float> s;
  Rng rng(10, 0);
  for (int k = 0; k < p.cols; ++k) s.push_back(std::exp(0.5f * rng.normalish()));
  for (const bool scaled : {false, true}) {
    auto f = factorize(h, {}, serial);
    ASSERT_TRUE(f.ok());
    std::vector<float> w(p.w), weights(importance);
    for (size_t i = 0; scaled && i < w.size(); ++i) w[i] *= s[i % s.size()];
    for (size_t k = 0; scaled && k < s.size(); ++k) weights[k] /= s[k] * s[k];
    if (scaled) scale_inputs(*f, s);
    const GroupedMatrix plain = fit_grouped(w.data(), p.rows, p.cols, 4, 64, false, weights.data(), serial);
    GroupedMatrix better = plain;
    feedback_codes(better, w.data(), *f, serial);
    EXPECT_EQ(fault(better), "");
    EXPECT_EQ(better.scales, plain.scales);
    EXPECT_TRUE(better.group_of.empty());
    std::vector<float> a = decoded(better), b = decoded(plain);
    for (size_t i = 0; scaled && i < a.size(); ++i) a[i] /= s[i % s.size()], b[i] /= s[i % s.size()];
    EXPECT_LT(p.output_error(a), 0.7 * p.output_error(b)) << scaled;
  }
}

// A group that is cut short by the end of the row, rows that are no multiple of what is worked on together, and threads in any order.
TEST(Gptq, OddSizes) {
  Problem p(6, 150);
  const Hessian h = p.hessian();
  auto f = factorize(h, {}, serial);
  ASSERT_TRUE(f.ok());
  const auto backwards = [](int n, const std::function<void(int)>& fn) {
    while (n-- > 0) fn(n);
  };
  auto a = gptq(p.w.data(), 13, *f, {4, 64, false}, serial), b = gptq(p.w.data(), 13, *f, {4, 64, false}, backwards);
  ASSERT_TRUE(a.ok() && b.ok());
  EXPECT_EQ(fault(*a), "");
  EXPECT_EQ(a->groups(), 3);
  EXPECT_EQ(a->codes, b->codes);
  EXPECT_EQ(a->scales, b->scales);
  EXPECT_FALSE(gptq(p.w.data(), 13, *f, {9, 64, false}, serial).ok());
  EXPECT_FALSE(gptq(p.w.data(), 13, *f, {4, 0, false}, serial).ok());
  EXPECT_FALSE(gptq(p.w.data(), 13, *f, {4, 257, false}, serial).ok());
}

TEST(Products, AreThoseOfAPlainLoop) {
  Rng rng(8, 0);
  for (const char* isa : {"base", "avx2", "avx512"}) {
    const FitKernels* kernels = fit_kernels_of(isa);
    if (!kernels) continue;
    for (auto [m, n, k] : {std::tuple(1, 1, 1), std::tuple(5, 7, 19), std::tuple(8, 70, 1100), std::tuple(4, 4, 8), std::tuple(9, 67, 50)}) {
      std::vector<float> a, b, c(size_t(m * n), 1.0f);
      for (int i = 0; i < m * k; ++i) a.push_back(rng.normalish());
      for (int i = 0; i < n * k; ++i) b.push_back(rng.normalish());
      kernels->products->add(c.data(), size_t(n), a.data(), size_t(k), b.data(), size_t(k), m, n, k, -1);
      for (int i = 0; i < m; ++i)
        for (int j = 0; j < n; ++j) {
          double s = 1;
          for (int p = 0; p < k; ++p) s -= double(a[size_t(i * k + p)]) * b[size_t(j * k + p)];
          ASSERT_NEAR(c[size_t(i * n + j)], s, 1e-3) << isa << " " << m << "x" << n << "x" << k;
        }
    }
  }
}

}  // namespace
}  // namespace sluice::quant
