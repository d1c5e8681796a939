#include "quant/calibrate/drift.h"

#include <algorithm>

#include "base/result.h"
#include "quant/calibrate/columns.h"
#include "quant/search/fit_kernels.h"

namespace sluice::quant {
namespace {

constexpr int kTile = 64;

int tiles(int n) { return (n + kTile - 1) / kTile; }

}  // namespace

void Drift::add(const float* before, const float* now, int count, const Parallel& parallel) {
  const size_t k = size_t(cols_), stride = size_t(count);
  const std::vector<float> inputs = columns_of(now, count, cols_, parallel);
  std::vector<float> moved = columns_of(before, count, cols_, parallel);
  for (size_t i = 0; i < moved.size(); ++i) moved[i] -= inputs[i];
  parallel(tiles(cols_), [&](int t) {
    const int begin = t * kTile, m = std::min(kTile, cols_ - begin);
    fit_kernels().products->add(&sums_[size_t(begin) * k], k, &inputs[size_t(begin) * stride], stride, moved.data(), stride, m, cols_, count, 1);
  });
  rows_ += stride;
}

// In the factor's order of entries y U^T U = w D is solved for y, a tile of columns after another: forwards for z = y U^T, then
// backwards.
void Drift::follow(float* w, int rows, const FeedbackFactor& f, float share, const Parallel& parallel) const {
  SLUICE_CHECK(f.cols == cols_);
  const size_t k = size_t(cols_);
  std::vector<float> y(size_t(rows) * k);
  {
    std::vector<float> pulls(size_t(rows) * k);
    parallel(tiles(rows), [&](int t) {
      const int begin = t * kTile, m = std::min(kTile, rows - begin);
      fit_kernels().products->add(&pulls[size_t(begin) * k], k, w + size_t(begin) * k, k, sums_.data(), k, m, cols_, cols_, 1);
      for (int r = begin; r < begin + m; ++r)
        for (size_t j = 0; j < k; ++j) y[size_t(r) * k + j] = pulls[size_t(r) * k + size_t(f.column_at[j])] / float(std::max<size_t>(1, rows_));
    });
  }
  std::vector<float> before(size_t(kTile) * k);  // columns of a tile above its square, as rows
  for (int b = 0; b < cols_; b += kTile) {
    const int n = std::min(kTile, cols_ - b);
    for (int i = 0; i < b; ++i)
      for (int j = 0; j < n; ++j) before[size_t(j) * k + size_t(i)] = f.upper[size_t(i) * k + size_t(b + j)];
    parallel(tiles(rows), [&](int t) {
      const int begin = t * kTile, m = std::min(kTile, rows - begin);
      float* z = &y[size_t(begin) * k];
      fit_kernels().products->add(z + b, k, z, k, before.data(), k, m, n, b, -1);
      for (int r = 0; r < m; ++r)
        for (int j = 0; j < n; ++j) {
          float* row = z + size_t(r) * k + size_t(b);
          row[j] /= f.upper[size_t(b + j) * k + size_t(b + j)];
          for (int i = j + 1; i < n; ++i) row[i] -= row[j] * f.upper[size_t(b + j) * k + size_t(b + i)];
        }
    });
  }
  for (int b = (cols_ - 1) / kTile * kTile; b >= 0; b -= kTile) {
    const int n = std::min(kTile, cols_ - b), end = b + n;
    parallel(tiles(rows), [&](int t) {
      const int begin = t * kTile, m = std::min(kTile, rows - begin);
      float* z = &y[size_t(begin) * k];
      fit_kernels().products->add(z + b, k, z + end, k, f.upper.data() + size_t(b) * k + size_t(end), k, m, n, cols_ - end, -1);
      for (int r = 0; r < m; ++r)
        for (int j = n - 1; j >= 0; --j) {
          float* row = z + size_t(r) * k + size_t(b);
          const float* u = &f.upper[size_t(b + j) * k + size_t(b)];
          float s = row[j];
          for (int i = j + 1; i < n; ++i) s -= row[i] * u[i];
          row[j] = s / u[j];
        }
    });
  }
  parallel(tiles(rows), [&](int t) {
    for (int r = t * kTile; r < std::min(rows, (t + 1) * kTile); ++r)
      for (size_t j = 0; j < k; ++j) w[size_t(r) * k + size_t(f.column_at[j])] += share * y[size_t(r) * k + j];
  });
}

}  // namespace sluice::quant
