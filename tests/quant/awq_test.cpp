#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"
#include "quant/calibrate/awq.h"

namespace sluice::quant {
namespace {

// A few columns are fed far larger inputs than the others, as layers of language models are.
struct Problem {
  int rows = 40, cols = 256, tokens = 60;
  std::vector<float> w, x, mean_abs, squares;
  explicit Problem(uint64_t seed) : mean_abs(256), squares(256) {
    Rng rng(seed, 0);
    for (int i = 0; i < rows * cols; ++i) w.push_back(0.05f * rng.normalish());
    for (int i = 0; i < tokens * cols; ++i) x.push_back(rng.normalish() * (i % cols % 50 == 7 ? 30.0f : 1.0f));
    for (int i = 0; i < tokens * cols; ++i) {
      mean_abs[size_t(i % cols)] += std::fabs(x[size_t(i)]) / float(tokens);
      squares[size_t(i % cols)] += x[size_t(i)] * x[size_t(i)] / float(tokens);
    }
  }
  double error(const GroupedMatrix& m, const std::vector<float>& s) const {
    std::vector<float> row(static_cast<size_t>(cols));
    double sum = 0;
    for (int n = 0; n < rows; ++n) {
      decode_row(m, n, row.data());
      for (int t = 0; t < tokens; ++t) {
        double e = 0;
        for (int k = 0; k < cols; ++k) e += double(row[size_t(k)] / s[size_t(k)] - w[size_t(n * cols + k)]) * x[size_t(t * cols + k)];
        sum += e * e;
      }
    }
    return sum;
  }
};

TEST(Awq, ScalesSpareTheColumnsThatMatter) {
  const Problem p(1);
  const MatrixView views[] = {{p.w.data(), 16}, {p.w.data() + 16 * 256, 24}};
  const std::vector<float> s = awq_scales(views, p.mean_abs, p.x.data(), p.tokens, {}, serial);
  ASSERT_EQ(s.size(), 256u);
  EXPECT_GT(s[7], 1.5f * s[8]);
  std::vector<float> scaled(p.w), ones(256, 1.0f);
  for (size_t i = 0; i < scaled.size(); ++i) scaled[i] *= s[i % 256];
  const GroupedMatrix with = round_grouped(scaled.data(), p.rows, p.cols, 4, 128, false), without = round_grouped(p.w.data(), p.rows, p.cols, 4, 128, false);
  EXPECT_LT(p.error(with, s), 0.5 * p.error(without, ones));
}

TEST(Awq, NothingIsScaledWhereAllColumnsAreAlike) {
  Problem p(2);
  const std::vector<float> even(256, 0.8f);
  const MatrixView view{p.w.data(), p.rows};
  for (float v : awq_scales({&view, 1}, even, p.x.data(), p.tokens, {}, serial)) EXPECT_NEAR(v, 1, 1e-5);
}

}  // namespace
}  // namespace sluice::quant
