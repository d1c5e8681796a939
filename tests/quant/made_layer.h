// A made layer: weights, and inputs whose columns go together and are of very different sizes, as those of real layers are.
#pragma once
#include <cmath>
#include <cstdint>
#include <vector>

#include "base/rng.h"

namespace sluice::quant {

struct MadeLayer {
  int rows, cols, tokens;
  std::vector<float> w;  // [rows, cols]

  MadeLayer(uint64_t seed, int n, int k, int t) : rows(n), cols(k), tokens(t), rng_(seed, 0) {
    for (int i = 0; i < rows * cols; ++i) w.push_back(0.02f * rng_.normalish());
    for (int i = 0; i < kFactors * cols; ++i) mix_.push_back(rng_.normalish());
    for (int i = 0; i < cols; ++i) size_.push_back(std::exp(rng_.normalish()));
  }
  // [tokens, cols], others each time: a few factors behind all columns.
  std::vector<float> inputs() {
    std::vector<float> x;
    for (int t = 0; t < tokens; ++t) {
      float f[kFactors];
      for (float& v : f) v = rng_.normalish();
      for (int k = 0; k < cols; ++k) {
        float v = 0.7f * rng_.normalish();
        for (int i = 0; i < kFactors; ++i) v += 0.3f * f[i] * mix_[size_t(i * cols + k)];
        x.push_back(size_[size_t(k)] * v);
      }
    }
    return x;
  }
  // Mean square of the errors of y's outputs on x.
  double output_error(const std::vector<float>& y, const std::vector<float>& x) const {
    double sum = 0;
    for (int t = 0; t < tokens; ++t)
      for (int n = 0; n < rows; ++n) {
        double e = 0;
        for (int k = 0; k < cols; ++k) e += double(y[size_t(n * cols + k)] - w[size_t(n * cols + k)]) * x[size_t(t * cols + k)];
        sum += e * e;
      }
    return sum / tokens / rows;
  }

 private:
  static constexpr int kFactors = 20;
  Rng rng_;
  std::vector<float> mix_, size_;
};

}  // namespace sluice::quant
