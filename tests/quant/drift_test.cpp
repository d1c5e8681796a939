// Weights that follow inputs which have drifted, on made ones.
#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.h"
#include "quant/calibrate/drift.h"

namespace sluice::quant {
namespace {

struct Drifted {
  int rows, cols, tokens;
  std::vector<float> w, before, now;

  // now is before, each column mixed with its neighbours', and noise.
  Drifted(uint64_t seed, int n, int k, int t, float noise) : rows(n), cols(k), tokens(t) {
    Rng rng(seed, 0);
    for (int i = 0; i < n * k; ++i) w.push_back(rng.normalish());
    std::vector<float> size;
    for (int i = 0; i < k; ++i) size.push_back(std::exp(rng.normalish()));
    for (int i = 0; i < t * k; ++i) before.push_back(size[size_t(i % k)] * rng.normalish());
    for (int i = 0; i < t * k; ++i) {
      const int column = i % k, next = i - column + (column + 1) % k;
      now.push_back(1.1f * before[size_t(i)] + 0.2f * before[size_t(next)] + noise * rng.normalish());
    }
  }
  // Mean square of what outputs of y with inputs as they are lack of w's with inputs as they were.
  double lack(const std::vector<float>& y) const {
    double sum = 0;
    for (int t = 0; t < tokens; ++t)
      for (int r = 0; r < rows; ++r) {
        double e = 0;
        for (int k = 0; k < cols; ++k) {
          const size_t at = size_t(t * cols + k), of = size_t(r * cols + k);
          e += double(w[of]) * before[at] - double(y[of]) * now[at];
        }
        sum += e * e;
      }
    return sum / tokens / rows;
  }
  std::vector<float> followed(const Parallel& parallel) const {
    Hessian h(cols);
    Drift drift(cols);
    const int half = tokens / 2;
    for (const auto& [begin, count] : {std::pair(0, half), std::pair(half, tokens - half)}) {
      h.add(&now[size_t(begin * cols)], count, serial);
      drift.add(&before[size_t(begin * cols)], &now[size_t(begin * cols)], count, serial);
    }
    auto f = factorize(h, {true, 1e-6f}, serial);
    EXPECT_TRUE(f.ok());
    std::vector<float> y = w;
    drift.follow(y.data(), rows, *f, 1, parallel);
    return y;
  }
};

TEST(Drift, IsUndoneWhereInputsStillTellWhatTheyWere) {
  for (const int cols : {40, 64, 150}) {
    const Drifted p(uint64_t(cols), 70, cols, 600, 0);
    EXPECT_LT(p.lack(p.followed(serial)), 1e-4 * p.lack(p.w)) << cols;
  }
}

TEST(Drift, OfNoiseLeavesTheLeast) {
  const Drifted p(7, 5, 96, 900, 0.3f);
  const std::vector<float> y = p.followed(serial);
  const double least = p.lack(y);
  EXPECT_LT(least, 0.5 * p.lack(p.w));
  Rng rng(1, 0);
  for (int trial = 0; trial < 20; ++trial) {  // nothing beside it is better
    std::vector<float> other = y;
    for (float& v : other) v += 0.05f * rng.normalish();
    EXPECT_GT(p.lack(other), least);
  }
}

TEST(Drift, NoneChangesNothingWhateverTheOrderOfWork) {
  Drifted p(9, 130, 70, 200, 0.1f);
  const Parallel backwards = [](int n, const std::function<void(int)>& fn) {
    while (n-- > 0) fn(n);
  };
  EXPECT_EQ(p.followed(serial), p.followed(backwards));
  p.before = p.now;
  EXPECT_EQ(p.followed(serial), p.w);
}

}  // namespace
}  // namespace sluice::quant
