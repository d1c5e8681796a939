// A sample of what matrices are multiplied with: rows of inputs, evenly spaced over a text, kept as columns side by side
// (search/fit_kernels.h's combine). Not thread-safe.
#pragma once
#include <algorithm>
#include <cstddef>
#include <vector>

#include "quant/search/fit_kernels.h"

namespace sluice::quant {

class InputSample {
 public:
  static constexpr int kRows = 512;
  InputSample() = default;
  // Of `tokens` rows that will be shown, kRows are kept at most.
  InputSample(int cols, int tokens)
      : cols_(cols), every_(std::max(1, (tokens + kRows - 1) / kRows)), count_(((tokens + every_ - 1) / every_ + kSpan - 1) / kSpan * kSpan),
        columns_(size_t(cols) * size_t(count_)) {}

  int cols() const { return cols_; }
  // Of a column: kept rows, and zeros up to a multiple of kSpan.
  int count() const { return count_; }
  const float* columns() const { return columns_.data(); }  // [cols, count]
  int kept() const { return kept_; }                        // rows
  void add(const float* rows, int count) {
    for (int r = 0; r < count; ++r, ++seen_)
      if (const int row = seen_ / every_; seen_ % every_ == every_ / 2 && row < count_) {
        ++kept_;
        for (int k = 0; k < cols_; ++k) columns_[size_t(k) * size_t(count_) + size_t(row)] = rows[size_t(r) * size_t(cols_) + size_t(k)];
      }
  }

 private:
  int cols_ = 0, every_ = 1, count_ = 0, seen_ = 0, kept_ = 0;
  std::vector<float> columns_;
};

}  // namespace sluice::quant
