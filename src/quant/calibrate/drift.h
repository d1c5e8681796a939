// How far a matrix's inputs have drifted from those of the model as it was, since what comes before it was rounded. Weights that are to give
// with inputs x' what w gave with x are, by least squares, w + w D H^-1 with D = (X - X')^T X' / rows and H = X'^T X' / rows (asymmetric
// calibration: GPTAQ, arXiv:2504.02692). Those are what is rounded then. K x K floats. One thread at a time; work is spread over `parallel`.
#pragma once
#include <cstddef>
#include <vector>

#include "quant/calibrate/error_feedback.h"

namespace sluice::quant {

class Drift {
 public:
  explicit Drift(int cols) : cols_(cols), sums_(size_t(cols) * size_t(cols)) {}
  int cols() const { return cols_; }
  // Inputs as they were and as they have become, [count, K] each.
  void add(const float* before, const float* now, int count, const Parallel& parallel);
  // w [rows, K] becomes w + share w D H^-1, H as it was factorized. All of it (1) is the least squares of this matrix's outputs; but where inputs
  // are mostly noise those shrink, layer after layer, and the model with them: a quarter is best (docs/adr/0017).
  static constexpr float kShare = 0.25f;
  void follow(float* w, int rows, const FeedbackFactor& factor, float share, const Parallel& parallel) const;

 private:
  int cols_;
  size_t rows_ = 0;
  std::vector<float> sums_;  // [i][k]: sums of x'_i (x_k - x'_k)
};

}  // namespace sluice::quant
