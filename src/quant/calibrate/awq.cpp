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
  fit_kernels().add_products(out.data(), size_t(count), scaled.data(), cols, sample, cols, rows, count, int(cols), 1);
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

GroupedMatrix fit_grouped(const float* w, int rows, int bits, int group, bool symmetric, std::span<const float> importance, const Parallel& parallel) {
  const int cols = int(importance.size());
  GroupedMatrix m{rows, cols, bits, group, {}, {}, {}, {}};
  const int groups = m.groups(), top = (1 << bits) - 1;
  m.codes.resize(size_t(rows) * size_t(cols));
  m.scales.resize(size_t(rows) * size_t(groups));
  m.zeros.resize(m.scales.size());
  double mean = 0;
  for (float v : importance) mean += v;
  const float unit = mean > 0 ? float(cols / mean) : 0;
  parallel((rows + kLanes - 1) / kLanes, [&](int task) {
    std::vector<float> x(size_t(group) * kLanes), weights(static_cast<size_t>(group));
    for (int g = 0; g < groups; ++g) {
      const int begin = g * group, n = std::min(group, cols - begin);
      for (int i = 0; i < n; ++i) {
        weights[size_t(i)] = importance[size_t(begin + i)] * unit + 1e-4f;
        for (int l = 0; l < kLanes; ++l) x[size_t(i * kLanes + l)] = task * kLanes + l < rows ? w[size_t(task * kLanes + l) * size_t(cols) + size_t(begin + i)] : 0;
      }
      float scale[kLanes], zero[kLanes];
      fit_kernels().long_group(x.data(), weights.data(), n, bits, symmetric, scale, zero);
      for (int l = 0; l < std::min(kLanes, rows - task * kLanes); ++l) {
        const size_t row = size_t(task * kLanes + l), at = row * size_t(groups) + size_t(g);
        m.scales[at] = scale[l];
        m.zeros[at] = uint8_t(zero[l]);
        for (int i = 0; i < n; ++i) {
          const float q = scale[l] == 0 ? zero[l] : std::nearbyint(x[size_t(i * kLanes + l)] / scale[l]) + zero[l];
          m.codes[row * size_t(cols) + size_t(begin + i)] = uint8_t(std::clamp(q, 0.0f, float(top)));
        }
      }
    }
  });
  return m;
}

}  // namespace sluice::quant
