// Cholesky's factor of a reordered matrix, block by block.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "quant/calibrate/error_feedback.h"
#include "quant/search/fit_kernels.h"

namespace sluice::quant {
namespace {

constexpr int kBlock = 64;

// Of the diagonal block at b: its own factor, in place. false: not positive.
bool factor_block(float* a, size_t stride, int b, int n) {
  for (int i = 0; i < n; ++i)
    for (int j = 0; j <= i; ++j) {
      const float *x = a + size_t(b + i) * stride + size_t(b), *y = a + size_t(b + j) * stride + size_t(b);
      double s = x[j];
      for (int k = 0; k < j; ++k) s -= double(x[k]) * y[k];
      if (i == j) {
        if (!(s > 0) || !std::isfinite(s)) return false;
        a[size_t(b + i) * stride + size_t(b + j)] = float(std::sqrt(s));
      } else {
        a[size_t(b + i) * stride + size_t(b + j)] = float(s / y[j]);
      }
    }
  return true;
}

// Lower factor L of the symmetric matrix whose lower triangle is a: a = L L^T, in place.
bool cholesky(std::vector<float>& a, int n, const Parallel& parallel) {
  const auto stride = size_t(n);
  for (int b = 0; b < n; b += kBlock) {
    const int width = std::min(kBlock, n - b), tasks = (n - b + kBlock - 1) / kBlock;
    parallel(tasks, [&](int t) {
      const int begin = b + t * kBlock, m = std::min(kBlock, n - begin);
      fit_kernels().products->add(&a[size_t(begin) * stride + size_t(b)], stride, &a[size_t(begin) * stride], stride, &a[size_t(b) * stride], stride, m, width, b, -1);
    });
    if (!factor_block(a.data(), stride, b, width)) return false;
    parallel(tasks, [&](int t) {
      for (int i = std::max(b + width, b + t * kBlock); i < std::min(n, b + (t + 1) * kBlock); ++i) {
        float* x = &a[size_t(i) * stride + size_t(b)];
        for (int j = 0; j < width; ++j) {
          const float* y = &a[size_t(b + j) * stride + size_t(b)];
          float s = x[j];
          for (int k = 0; k < j; ++k) s -= x[k] * y[k];
          x[j] = s / y[j];
        }
      }
    });
  }
  return true;
}

}  // namespace

Result<FeedbackFactor> factorize(const Hessian& h, const FeedbackOptions& options, const Parallel& parallel) {
  const int n = h.cols();
  FeedbackFactor f;
  f.cols = n;
  const std::vector<float> diagonal = h.diagonal();
  double mean = 0;
  for (float d : diagonal) {
    if (!std::isfinite(d)) return invalid("the calibration text gives inputs that are no numbers", "--calibrate");
    mean += d;
  }
  mean /= n;
  if (mean <= 0) mean = 1;  // nothing ever came in: all columns alike
  f.column_at.resize(size_t(n));
  std::iota(f.column_at.begin(), f.column_at.end(), 0);
  if (options.act_order)
    std::stable_sort(f.column_at.begin(), f.column_at.end(), [&](int a, int b) { return diagonal[size_t(a)] < diagonal[size_t(b)]; });
  else
    std::reverse(f.column_at.begin(), f.column_at.end());
  for (double damp = std::max(1e-6, double(options.damp)); damp < 100; damp *= 10) {
    std::vector<float> lower(size_t(n) * size_t(n));
    parallel((n + kBlock - 1) / kBlock, [&](int t) {
      for (int i = t * kBlock; i < std::min(n, (t + 1) * kBlock); ++i) {
        for (int j = 0; j <= i; ++j) lower[size_t(i) * size_t(n) + size_t(j)] = h.at(f.column_at[size_t(i)], f.column_at[size_t(j)]);
        lower[size_t(i) * size_t(n) + size_t(i)] += float(damp * mean);
      }
    });
    if (!cholesky(lower, n, parallel)) continue;
    f.upper.assign(size_t(n) * size_t(n), 0);
    parallel((n + kBlock - 1) / kBlock, [&](int t) {
      for (int j = t * kBlock; j < std::min(n, (t + 1) * kBlock); ++j)
        for (int i = j; i < n; ++i) f.upper[size_t(j) * size_t(n) + size_t(i)] = lower[size_t(i) * size_t(n) + size_t(j)];
    });
    return f;
  }
  return invalid("inputs of the calibration text give no positive matrix, however damped", "--calibrate");
}

}  // namespace sluice::quant
