// Groups' roundings that are chosen together, on made problems: inputs whose columns go together, as those of real layers do.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/rng.h"
#include "quant/calibrate/block_choice.h"
#include "quant/calibrate/column_squares.h"
#include "quant/fit.h"
#include "made_layer.h"

namespace sluice::quant {
namespace {

struct Layer : MadeLayer {
  static constexpr int kRows = 21, kCols = 512, kTokens = 1000;

  explicit Layer(uint64_t seed) : MadeLayer(seed, kRows, kCols, kTokens) {}
  double error(const WeightFormat& f, const std::vector<uint8_t>& bytes, const std::vector<float>& x) const {
    std::vector<float> y(w.size());
    f.decode(bytes.data(), y.data(), y.size());
    return output_error(y, x);
  }
};

std::vector<float> mean_squares(const std::vector<float>& x) {
  ColumnSquares s(Layer::kCols);
  s.add(x.data(), Layer::kTokens, 0, Layer::kCols);
  return s.mean(Layer::kTokens);
}
InputSample sample_of(const std::vector<float>& x) {
  constexpr int tokens = Layer::kTokens;
  InputSample s(Layer::kCols, tokens);
  s.add(x.data(), tokens / 3);
  s.add(x.data() + size_t(tokens / 3) * Layer::kCols, tokens - tokens / 3);
  return s;
}

TEST(BlockChoice, LeavesOutputsNearerOnInputsThatItHasNotSeen) {
  Layer layer(3);
  const std::vector<float> seen = layer.inputs(), unseen = layer.inputs(), importance = mean_squares(seen);
  const InputSample sample = sample_of(seen);
  for (const WeightFormat* f : formats_table()) {
    if (!f->shape) continue;
    std::vector<uint8_t> alone(Layer::kRows * row_bytes(*f, Layer::kCols)), together(alone.size());
    fit(*f, layer.w.data(), importance.data(), alone.data(), Layer::kRows, Layer::kCols);
    fit_together(*f, layer.w.data(), importance.data(), sample, together.data(), Layer::kRows, Layer::kCols);
    EXPECT_LT(layer.error(*f, together, unseen), 0.9 * layer.error(*f, alone, unseen)) << f->name;
  }
}

TEST(BlockChoice, RowsAreEachAlone) {
  Layer layer(4);
  const std::vector<float> x = layer.inputs(), importance = mean_squares(x);
  const InputSample sample = sample_of(x);
  for (const WeightType type : {WeightType::kQ4_0, WeightType::kQ2_K, WeightType::kQ4_K}) {
    const WeightFormat& f = *find_format(type);
    const size_t stride = row_bytes(f, Layer::kCols);
    std::vector<uint8_t> all(Layer::kRows * stride), one(stride);
    fit_together(f, layer.w.data(), importance.data(), sample, all.data(), Layer::kRows, Layer::kCols);
    for (size_t r = 0; r < Layer::kRows; ++r) {
      fit_together(f, &layer.w[r * Layer::kCols], importance.data(), sample, one.data(), 1, Layer::kCols);
      EXPECT_EQ(std::memcmp(one.data(), &all[r * stride], stride), 0) << f.name << " row " << r;
    }
  }
}

TEST(BlockChoice, WithoutASampleEachGroupIsTheBestAlone) {
  const Layer layer(5);
  const std::vector<float> importance(Layer::kCols, 1);
  for (const WeightFormat* f : formats_table()) {
    if (!f->shape) continue;
    std::vector<uint8_t> alone(Layer::kRows * row_bytes(*f, Layer::kCols)), together(alone.size());
    fit(*f, layer.w.data(), importance.data(), alone.data(), Layer::kRows, Layer::kCols);
    fit_together(*f, layer.w.data(), importance.data(), InputSample(Layer::kCols, 0), together.data(), Layer::kRows, Layer::kCols);
    EXPECT_EQ(alone, together) << f->name;
  }
}

// Of inputs that only the rest of the text has the mean squares are heard, column by column.
TEST(BlockChoice, HearsOfInputsThatTheSampleLacks) {
  Layer layer(8);
  std::vector<float> seen = layer.inputs();
  constexpr int kRare = 77;
  for (int t = 0; t < Layer::kTokens; ++t) seen[size_t(t * Layer::kCols + kRare)] *= 1e-3f;
  const InputSample sample = sample_of(seen);
  std::vector<float> importance = mean_squares(seen);
  const WeightFormat& f = *find_format(WeightType::kQ4_0);
  std::vector<uint8_t> bytes(Layer::kRows * row_bytes(f, Layer::kCols));
  const auto rare_error = [&] {
    fit_together(f, layer.w.data(), importance.data(), sample, bytes.data(), Layer::kRows, Layer::kCols);
    std::vector<float> y(layer.w.size());
    f.decode(bytes.data(), y.data(), y.size());
    double sum = 0;
    for (size_t r = 0; r < Layer::kRows; ++r) sum += std::pow(double(y[r * Layer::kCols + kRare]) - layer.w[r * Layer::kCols + kRare], 2);
    return sum;
  };
  const double unheard = rare_error();
  importance[kRare] = 1e4f;
  EXPECT_LT(rare_error(), 0.15 * unheard);
}

// Weights at the ends of what blocks hold, whose neighbours' grids would leave it.
TEST(BlockChoice, HoldsTheLargestAndTheSmallestWeights) {
  Layer layer(6);
  const std::vector<float> x = layer.inputs(), importance = mean_squares(x);
  const InputSample sample = sample_of(x);
  for (int r = 0; r < Layer::kRows; ++r)
    for (int k = 0; k < Layer::kCols; ++k) {
      float& w = layer.w[size_t(r * Layer::kCols + k)];
      w = r == 0 ? 0 : r == 1 ? w * 1e-38f : r == 2 ? std::copysign(kLargestHalf, w) : r == 3 ? (k % 32 ? 0 : w * 1e6f) : w;
    }
  for (const WeightFormat* f : formats_table()) {
    if (!f->shape) continue;
    std::vector<uint8_t> bytes(Layer::kRows * row_bytes(*f, Layer::kCols));
    fit_together(*f, layer.w.data(), importance.data(), sample, bytes.data(), Layer::kRows, Layer::kCols);
    std::vector<float> y(layer.w.size());
    f->decode(bytes.data(), y.data(), y.size());
    for (size_t k = 0; k < y.size(); ++k) ASSERT_TRUE(std::isfinite(y[k]) && std::fabs(y[k]) < 1.3f * kLargestHalf) << f->name << " " << k;
    for (int k = 0; k < Layer::kCols; ++k) ASSERT_EQ(y[size_t(k)], 0) << f->name;
  }
}

TEST(InputSample, KeepsRowsEvenlySpaced) {
  for (const int tokens : {1, 63, 64, 511, 512, 513, 8192, 10000}) {
    InputSample s(2, tokens);
    std::vector<float> rows;
    for (int t = 0; t < tokens; ++t) rows.insert(rows.end(), {float(t + 1), 0.5f});
    s.add(rows.data(), tokens / 2);
    s.add(&rows[size_t(tokens / 2) * 2], tokens - tokens / 2);
    ASSERT_LE(s.count(), InputSample::kRows);
    const int every = (tokens + InputSample::kRows - 1) / InputSample::kRows;
    int kept = 0;
    for (; kept < s.count() && s.columns()[kept] != 0; ++kept) {
      EXPECT_EQ(int(s.columns()[kept]) - 1, every / 2 + kept * every);
      EXPECT_EQ(s.columns()[s.count() + kept], 0.5f);
    }
    EXPECT_EQ(kept, (tokens - 1 - every / 2) / every + 1) << tokens;
    for (int k = kept; k < s.count(); ++k) EXPECT_EQ(s.columns()[k], 0);
  }
}

TEST(FitKernels, CombineAndShortenAreWhatTheySay) {
  Rng rng(9, 0);
  for (const char* isa : {"base", "avx2", "avx512"}) {
    const FitKernels* kernels = fit_kernels_of(isa);
    if (!kernels) continue;
    for (const int m : {1, 3, 4, 9})
      for (const int count : {kSpan, 3 * kSpan}) {
        const int n = 13;
        std::vector<float> a, b, c(size_t(m * count)), sum;
        for (int i = 0; i < m * (n + 2); ++i) a.push_back(rng.normalish());
        for (int i = 0; i < n * count; ++i) b.push_back(rng.normalish());
        kernels->products->combine(c.data(), a.data(), n + 2, b.data(), m, n, count);
        std::vector<double> squares(size_t(m) + 1);
        for (int k = 0; k < count; ++k) sum.push_back(3 * rng.normalish());
        for (int k = 0; k < count; ++k) squares[size_t(m)] += double(sum[size_t(k)]) * sum[size_t(k)];
        for (int i = 0; i < m; ++i)
          for (int k = 0; k < count; ++k) {
            double s = 0;
            for (int j = 0; j < n; ++j) s += double(a[size_t(i * (n + 2) + j)]) * b[size_t(j * count + k)];
            ASSERT_NEAR(c[size_t(i * count + k)], s, 1e-4) << isa;
            squares[size_t(i)] += (sum[size_t(k)] + s) * (sum[size_t(k)] + s);
          }
        std::vector<float> costs;
        for (int i = 0; i < m; ++i) squares[size_t(i)] += costs.emplace_back(20 * rng.normalish());
        const int best = int(std::min_element(squares.begin(), squares.end()) - squares.begin());
        std::vector<float> now = sum;
        EXPECT_EQ(kernels->products->shorten(now.data(), c.data(), size_t(count), costs.data(), m, count), best == m ? -1 : best) << isa;
        for (int k = 0; k < count; ++k) EXPECT_EQ(now[size_t(k)], best == m ? sum[size_t(k)] : sum[size_t(k)] + c[size_t(best * count + k)]);
      }
  }
}

}  // namespace
}  // namespace sluice::quant
