#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"
#include "quant/calibrate/grouped_fit.h"

namespace sluice::quant {
namespace {

constexpr int kRows = 40, kCols = 256;

// Rows of weights, a few of them large.
std::vector<float> some_weights(uint64_t seed) {
  Rng rng(seed, 0);
  std::vector<float> w;
  for (int i = 0; i < kRows * kCols; ++i) w.push_back(0.05f * rng.normalish() * (i % 97 == 0 ? 4.0f : 1.0f));
  return w;
}
// counts: [rows * cols], how much each weight's error counts.
double error(const std::vector<float>& w, const GroupedMatrix& m, const std::vector<float>& counts) {
  std::vector<float> row(static_cast<size_t>(m.cols));
  double sum = 0;
  for (size_t n = 0; n < size_t(m.rows); ++n) {
    decode_row(m, int(n), row.data());
    for (size_t k = 0; k < row.size(); ++k) sum += counts[n * row.size() + k] * std::pow(double(row[k]) - w[n * row.size() + k], 2);
  }
  return sum;
}

TEST(FitGrouped, BeatsRoundingInTheErrorThatCounts) {
  const std::vector<float> w = some_weights(3);
  Rng rng(4, 0);
  std::vector<float> importance, of_columns, of_sizes;
  for (int k = 0; k < kCols; ++k) importance.push_back(rng.uniform() * (k % 50 == 7 ? 100.0f : 1.0f));
  for (size_t i = 0; i < w.size(); ++i) of_columns.push_back(importance[i % kCols]);
  for (size_t i = 0; i < w.size(); ++i) {
    double square = 0;
    for (size_t k = i / 128 * 128; k < i / 128 * 128 + 128; ++k) square += double(w[k]) * w[k] / 128;
    of_sizes.push_back(float(1 + w[i] * w[i] / square));
  }
  for (int bits : {2, 3, 4, 8})
    for (bool symmetric : {false, true})
      for (bool known : {false, true}) {
        const std::vector<float>& counts = known ? of_columns : of_sizes;
        const GroupedMatrix fitted = fit_grouped(w.data(), kRows, kCols, bits, 128, symmetric, known ? importance.data() : nullptr, serial);
        EXPECT_EQ(fault(fitted), "");
        EXPECT_LT(error(w, fitted, counts), 0.92 * error(w, round_grouped(w.data(), kRows, kCols, bits, 128, symmetric), counts)) << bits << symmetric << known;
      }
}

TEST(FitGrouped, ZeroRowsAndShortGroups) {
  std::vector<float> w(3 * 150);
  for (size_t i = 300; i < 450; ++i) w[i] = 0.001f * float(i % 17) - 0.003f;
  const GroupedMatrix m = fit_grouped(w.data(), 3, 150, 4, 64, false, nullptr, serial);
  EXPECT_EQ(fault(m), "");
  std::vector<float> row(150);
  decode_row(m, 0, row.data());
  for (float v : row) EXPECT_EQ(v, 0);
  decode_row(m, 2, row.data());
  for (int k = 0; k < 150; ++k) EXPECT_NEAR(row[size_t(k)], w[size_t(300 + k)], 0.0011f);
}

}  // namespace
}  // namespace sluice::quant
