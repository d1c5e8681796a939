// The importance of a matrix's columns: the mean square of what they are multiplied with. An error e of a weight in column k changes
// an output by e * x_k, so its mean square counts e^2 times this (the diagonal of X^T X / rows).
// Not thread-safe, but add may be called by several threads for different columns.
#pragma once
#include <cstddef>
#include <vector>

namespace sluice::quant {

class ColumnSquares {
 public:
  explicit ColumnSquares(int cols) : sums_(size_t(cols)) {}
  int cols() const { return int(sums_.size()); }
  // Columns [begin, end) of rows [count, cols]. Sums are in double and in the order of rows.
  void add(const float* rows, int count, int begin, int end) {
    for (int r = 0; r < count; ++r) {
      const float* x = rows + size_t(r) * sums_.size();
      for (int k = begin; k < end; ++k) sums_[size_t(k)] += double(x[k]) * x[k];
    }
  }
  // [cols], of `count` rows in all.
  std::vector<float> mean(size_t count) const {
    std::vector<float> m(sums_.size());
    for (size_t k = 0; k < m.size(); ++k) m[k] = float(sums_[k] / double(count ? count : 1));
    return m;
  }

 private:
  std::vector<double> sums_;
};

}  // namespace sluice::quant
