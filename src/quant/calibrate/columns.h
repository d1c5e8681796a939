// Rows of inputs turned into rows of columns, so that sums over tokens are products of rows (search/fit_kernels.h). Pure.
#pragma once
#include <algorithm>
#include <vector>

#include "quant/calibrate/parallel.h"

namespace sluice::quant {

// rows: [count, cols]; returns [cols, count].
inline std::vector<float> columns_of(const float* rows, int count, int cols, const Parallel& parallel) {
  constexpr int kTile = 64;
  const size_t k = size_t(cols), stride = size_t(count);
  std::vector<float> columns(k * stride);
  parallel((cols + kTile - 1) / kTile, [&](int t) {
    for (int i = t * kTile; i < std::min(cols, (t + 1) * kTile); ++i)
      for (size_t r = 0; r < stride; ++r) columns[size_t(i) * stride + r] = rows[r * k + size_t(i)];
  });
  return columns;
}

}  // namespace sluice::quant
