#include "quant/calibrate/grouped_fit.h"

#include <algorithm>
#include <cmath>

#include "quant/search/fit_kernels.h"

namespace sluice::quant {

GroupedMatrix fit_grouped(const float* w, int rows, int cols, int bits, int group, bool symmetric, const float* importance, const Parallel& parallel) {
  GroupedMatrix m{rows, cols, bits, group, {}, {}, {}, {}};
  const int groups = m.groups(), top = (1 << bits) - 1;
  m.codes.resize(size_t(rows) * size_t(cols));
  m.scales.resize(size_t(rows) * size_t(groups));
  m.zeros.resize(m.scales.size());
  double mean = 0;
  for (int k = 0; importance && k < cols; ++k) mean += importance[k];
  const float unit = mean > 0 ? float(cols / mean) : 0;
  parallel((rows + kLanes - 1) / kLanes, [&](int task) {
    std::vector<float> x(size_t(group) * kLanes), weights(static_cast<size_t>(group));
    for (int g = 0; g < groups; ++g) {
      const int begin = g * group, n = std::min(group, cols - begin);
      for (int i = 0; i < n; ++i) {
        if (importance) weights[size_t(i)] = importance[begin + i] * unit + 1e-4f;
        for (int l = 0; l < kLanes; ++l) x[size_t(i * kLanes + l)] = task * kLanes + l < rows ? w[size_t(task * kLanes + l) * size_t(cols) + size_t(begin + i)] : 0;
      }
      float scale[kLanes], zero[kLanes];
      fit_kernels().long_group(x.data(), importance ? weights.data() : nullptr, n, bits, symmetric, scale, zero);
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
