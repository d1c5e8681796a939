#include "quant/calibrate/hessian.h"

#include <algorithm>

#include "quant/calibrate/columns.h"
#include "quant/search/fit_kernels.h"

namespace sluice::quant {

void Hessian::add(const float* rows, int count, const Parallel& parallel) {
  constexpr int kTile = 64;
  const size_t k = size_t(cols_), stride = size_t(count);
  const std::vector<float> columns = columns_of(rows, count, cols_, parallel);
  parallel((cols_ + kTile - 1) / kTile, [&](int t) {
    const int begin = t * kTile, m = std::min(kTile, cols_ - begin);
    fit_kernels().products->add(&sums_[size_t(begin) * k], k, &columns[size_t(begin) * stride], stride, columns.data(), stride, m, begin + m, count, 1);
  });
  rows_ += stride;
}

std::vector<float> Hessian::diagonal() const {
  std::vector<float> d(static_cast<size_t>(cols_));
  for (int i = 0; i < cols_; ++i) d[size_t(i)] = at(i, i);
  return d;
}

}  // namespace sluice::quant
