#include "quant/calibrate/awq.h"

#include <algorithm>
#include <cmath>

#include "quant/search/fit_kernels.h"

namespace sluice::quant {
namespace {

// The rows that are tried: evenly over the matrix.
std::vector<float> some_rows(const MatrixView& m, size_t cols, int most, int& count) {
  count = std::min(m.rows, most);
  std::vector<float> w(size_t(count) * cols);
  for (int i = 0; i < count; ++i) std::copy_n(m.w + size_t(int64_t(i) * m.rows / count) * cols, cols, &w[size_t(i) * cols]);
  return w;
}

// Squared error of the outputs on the sample when columns are scaled by s, rounded, and scaled back.
double error_with(const std::vector<float>& w, int rows, const std::vector<float>& s, const float* sample, int count, const AwqSearch& o) {
  const size_t cols = s.size();
  std::vector<float> scaled(w.size()), row(cols);
  for (size_t i = 0; i < w.size(); ++i) scaled[i] = w[i] * s[i % cols];
  const GroupedMatrix m = round_grouped(scaled.data(), rows, int(cols), o.bits, o.group, false);
  for (int r = 0; r < rows; ++r) {
    decode_row(m, r, row.data());
    for (size_t k = 0; k < cols; ++k) scaled[size_t(r) * cols + k] = row[k] / s[k] - w[size_t(r) * cols + k];
  }
  std::vector<float> out(size_t(rows) * size_t(count));
  fit_kernels().products->add(out.data(), size_t(count), scaled.data(), cols, sample, cols, rows, count, int(cols), 1);
  double sum = 0;
  for (float v : out) sum += double(v) * v;
  return sum;
}

std::vector<float> scales_of(std::span<const float> mean_abs, double power) {
  std::vector<float> s(mean_abs.size());
  float lo = INFINITY, hi = 0;
  for (size_t k = 0; k < s.size(); ++k) {
    s[k] = float(std::pow(std::max(1e-5, double(mean_abs[k])), power));
    lo = std::min(lo, s[k]);
    hi = std::max(hi, s[k]);
  }
  const float middle = std::sqrt(lo * hi);
  for (float& v : s) v = std::clamp(v / middle, 1e-3f, 1e3f);
  return s;
}

}  // namespace

std::vector<float> awq_scales(std::span<const MatrixView> matrices, std::span<const float> mean_abs, const float* sample, int count, const AwqSearch& o,
                              const Parallel& parallel) {
  std::vector<std::vector<float>> rows;
  std::vector<int> counts(matrices.size());
  for (size_t i = 0; i < matrices.size(); ++i) rows.push_back(some_rows(matrices[i], mean_abs.size(), o.max_rows, counts[i]));
  std::vector<double> errors(size_t(o.steps) + 1);
  parallel(o.steps + 1, [&](int step) {
    const std::vector<float> s = scales_of(mean_abs, double(step) / o.steps);
    for (size_t i = 0; i < matrices.size(); ++i)
      errors[size_t(step)] += error_with(rows[i], counts[i], s, sample, count, o) * matrices[i].rows / counts[i];
  });
  const auto best = std::min_element(errors.begin(), errors.end()) - errors.begin();
  return scales_of(mean_abs, double(best) / o.steps);
}

}  // namespace sluice::quant
