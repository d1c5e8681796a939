#include "quant/grouped.h"

#include <algorithm>
#include <cmath>

#include "base/fp8.h"
#include "base/half.h"

namespace sluice::quant {
namespace {

int group_at(const GroupedMatrix& m, int k) { return m.group_of.empty() ? k / m.group : m.group_of[size_t(k)]; }

// Scale and zero of one group by its least and largest value.
void fit_group(float low, float high, int bits, bool symmetric, float& scale, uint8_t& zero) {
  const int top = (1 << bits) - 1, middle = 1 << (bits - 1);
  float step;
  if (symmetric) {
    // Codes reach -middle below and middle - 1 above: the larger side decides, so that nothing is clipped by more than half a step.
    step = std::max(-low / float(middle), high / (float(middle) - 0.5f));
    zero = uint8_t(middle);
  } else {
    low = std::min(low, 0.0f);
    high = std::max(high, 0.0f);
    step = (high - low) / float(top);
  }
  step = std::min(step, 65504.0f);
  uint16_t half = float_to_half(step);
  if (half_to_float(half) < step) ++half;  // up, or the ends of 8 bits would be clipped
  if (half == 0) half = 1;                 // an empty group: everything rounds to zero
  scale = half_to_float(half);
  if (!symmetric) zero = uint8_t(std::clamp(int(std::nearbyint(-low / scale)), 0, top));
}

}  // namespace

std::string fault(const GroupedMatrix& m) {
  const size_t n = size_t(m.rows), k = size_t(m.cols), g = size_t(m.groups());
  if (m.rows < 1 || m.cols < 1 || m.group < 1) return "rows, cols and group must be at least 1";
  if (m.bits < 2 || m.bits > 8) return "bits: " + std::to_string(m.bits) + " is outside 2..8";
  if (m.codes.size() != n * k) return "codes: " + std::to_string(m.codes.size()) + " entries, not rows * cols";
  if (m.scales.size() != n * g) return "scales: " + std::to_string(m.scales.size()) + " entries, not rows * groups";
  if (m.zeros.size() != n * g) return "zeros: " + std::to_string(m.zeros.size()) + " entries, not rows * groups";
  if (!m.group_of.empty() && m.group_of.size() != k) return "group_of: " + std::to_string(m.group_of.size()) + " entries, not cols";
  const auto above = [&](uint8_t v) { return v >> m.bits != 0; };
  if (std::any_of(m.codes.begin(), m.codes.end(), above)) return "codes: one does not fit its bits";
  if (std::any_of(m.zeros.begin(), m.zeros.end(), above)) return "zeros: one does not fit its bits";
  for (int32_t v : m.group_of)
    if (v < 0 || size_t(v) >= g) return "group_of: " + std::to_string(v) + " is no group";
  for (float s : m.scales)
    if (!std::isfinite(s) || half_to_float(float_to_half(s)) != s) return "scales: " + std::to_string(s) + " is no finite half";
  return {};
}

std::string fault(const Fp8Matrix& m) {
  if (m.rows < 1 || m.cols < 1 || m.block_rows < 1 || m.block_cols < 1) return "rows, cols and blocks must be at least 1";
  if (m.codes.size() != size_t(m.rows) * size_t(m.cols)) return "codes: " + std::to_string(m.codes.size()) + " entries, not rows * cols";
  if (m.scales.size() != size_t(m.scale_rows()) * size_t(m.scale_cols())) return "scales: " + std::to_string(m.scales.size()) + " entries";
  if (std::any_of(m.codes.begin(), m.codes.end(), e4m3_is_nan)) return "codes: one is NaN";
  for (float s : m.scales)
    if (!std::isfinite(s)) return "scales: one is not finite";
  return {};
}

void decode_row(const GroupedMatrix& m, int n, float* out) {
  const uint8_t* codes = m.codes.data() + size_t(n) * size_t(m.cols);
  const size_t first = size_t(n) * size_t(m.groups());
  for (int k = 0; k < m.cols; ++k) {
    const size_t g = first + size_t(group_at(m, k));
    out[k] = m.scales[g] * float(int(codes[k]) - int(m.zeros[g]));
  }
}

void decode_row(const Fp8Matrix& m, int n, float* out) {
  const uint8_t* codes = m.codes.data() + size_t(n) * size_t(m.cols);
  const float* scales = m.scales.data() + size_t(n / m.block_rows) * size_t(m.scale_cols());
  for (int k = 0; k < m.cols; ++k) out[k] = scales[k / m.block_cols] * e4m3_to_float(codes[k]);
}

GroupedMatrix round_grouped(const float* w, int rows, int cols, int bits, int group, bool symmetric) {
  GroupedMatrix m{rows, cols, bits, group, {}, {}, {}, {}};
  m.codes.resize(size_t(rows) * size_t(cols));
  m.scales.resize(size_t(rows) * size_t(m.groups()));
  m.zeros.resize(m.scales.size());
  const int top = (1 << bits) - 1;
  for (int n = 0; n < rows; ++n) {
    const float* row = w + size_t(n) * size_t(cols);
    for (int begin = 0, g = 0; begin < cols; begin += group, ++g) {
      const int end = std::min(cols, begin + group);
      const auto [low, high] = std::minmax_element(row + begin, row + end);
      const size_t at = size_t(n) * size_t(m.groups()) + size_t(g);
      fit_group(*low, *high, bits, symmetric, m.scales[at], m.zeros[at]);
      for (int k = begin; k < end; ++k) {
        const float q = std::nearbyint(row[k] / m.scales[at]) + float(m.zeros[at]);
        m.codes[size_t(n) * size_t(cols) + size_t(k)] = uint8_t(std::clamp(q, 0.0f, float(top)));
      }
    }
  }
  return m;
}

Fp8Matrix round_fp8(const float* w, int rows, int cols, int block_rows, int block_cols) {
  Fp8Matrix m{rows, cols, block_rows, block_cols, {}, {}};
  m.codes.resize(size_t(rows) * size_t(cols));
  m.scales.assign(size_t(m.scale_rows()) * size_t(m.scale_cols()), 0.0f);
  const auto scale_of = [&](int n, int k) -> float& { return m.scales[size_t(n / block_rows) * size_t(m.scale_cols()) + size_t(k / block_cols)]; };
  for (int n = 0; n < rows; ++n)
    for (int k = 0; k < cols; ++k) {
      float& largest = scale_of(n, k);
      largest = std::max(largest, std::abs(w[size_t(n) * size_t(cols) + size_t(k)]));
    }
  for (float& s : m.scales) s = s > 0 ? s / kE4m3Max : 1.0f;
  for (float& s : m.scales)
    if (!(s >= 0x1p-126f)) s = 0x1p-126f;  // a scale too small to divide by
  for (int n = 0; n < rows; ++n)
    for (int k = 0; k < cols; ++k) {
      const size_t at = size_t(n) * size_t(cols) + size_t(k);
      m.codes[at] = float_to_e4m3(w[at] / scale_of(n, k));
    }
  return m;
}

}  // namespace sluice::quant
