// What a matrix's inputs say of errors in its rows: for an error row e (float[K]) the mean square of the output's error is e H e^T with
// H = X^T X / rows. Kept as the lower triangle of sums. K x K floats. One thread at a time; the work is spread over `parallel`.
#pragma once
#include <cstddef>
#include <vector>

#include "quant/calibrate/parallel.h"

namespace sluice::quant {

class Hessian {
 public:
  explicit Hessian(int cols) : cols_(cols), sums_(size_t(cols) * size_t(cols)) {}
  int cols() const { return cols_; }
  size_t rows() const { return rows_; }
  // rows [count, K].
  void add(const float* rows, int count, const Parallel& parallel);
  // H[i][j].
  float at(int i, int j) const { return (i >= j ? sums_[size_t(i) * size_t(cols_) + size_t(j)] : sums_[size_t(j) * size_t(cols_) + size_t(i)]) / float(rows_ ? rows_ : 1); }
  std::vector<float> diagonal() const;

 private:
  int cols_;
  size_t rows_ = 0;
  std::vector<float> sums_;
};

}  // namespace sluice::quant
