// A sample of what matrices are multiplied with: rows of inputs, evenly spaced over a text, kept as columns side by side
// (search/fit_kernels.h's combine). Memory: 2 KiB a column at most. Not thread-safe.
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
      : every_(std::max(1, (tokens + kRows - 1) / kRows)), count_(((tokens + every_ - 1) / every_ + kSpan - 1) / kSpan * kSpan),
        columns_(size_t(cols) * size_t(count_)), squares_(size_t(cols)) {}

  // Of a column: kept rows, and zeros up to a multiple of kSpan.
  int count() const { return count_; }
  const float* columns() const { return columns_.data(); }  // [cols, count]
  const float* squares() const { return squares_.data(); }  // [cols], summed over kept rows
  int kept() const { return kept_; }                        // rows
  void add(const float* rows, int count) {
    for (int r = 0; r < count; ++r, ++seen_)
      if (const int row = seen_ / every_; seen_ % every_ == every_ / 2 && row < count_) {
        ++kept_;
        for (size_t k = 0; k < squares_.size(); ++k) {
          const float x = rows[size_t(r) * squares_.size() + k];
          columns_[k * size_t(count_) + size_t(row)] = x;
          squares_[k] += x * x;
        }
      }
  }

 private:
  int every_ = 1, count_ = 0, seen_ = 0, kept_ = 0;
  std::vector<float> columns_, squares_;
};

}  // namespace sluice::quant
