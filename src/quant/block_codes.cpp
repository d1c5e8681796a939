#include "quant/block_codes.h"

#include <algorithm>
#include <cmath>

#include "base/half.h"

namespace sluice::quant {
namespace {

constexpr float kLeast = 0x1p-40f;  // a scale below it is zero in f16, and its inverse no good number

float as_half(float v) { return half_to_float(float_to_half(std::clamp(v, -kLargestHalf, kLargestHalf))); }

// The scale that spans a group's values from its offset on, and that offset (0 or below where it is an integer's multiple).
void span_group(const BlockShape& s, const float* x, float& scale, float& offset) {
  const float levels_low = s.level_value(s.min_level), levels_high = s.level_value(s.max_level);
  if (s.has_offset) {
    auto [lo, hi] = std::minmax_element(x, x + s.group);
    offset = s.integer_scales() ? std::min(*lo, 0.0f) : *lo;
    scale = std::max(0.0f, *hi - offset) / (levels_high - levels_low);
    return;
  }
  // The largest value takes the level furthest from zero, whatever its sign.
  const float largest = *std::max_element(x, x + s.group, [](float a, float b) { return std::fabs(a) < std::fabs(b); });
  offset = 0;
  scale = largest / levels_low;
}

}  // namespace

int nearest_level(const BlockShape& s, float v) {
  if (!s.codebook) return int(std::nearbyint(std::clamp(v, float(s.min_level), float(s.max_level))));
  int i = s.min_level;
  while (i < s.max_level && v > 0.5f * (float(s.codebook[i]) + float(s.codebook[i + 1]))) ++i;
  return i;
}

void plain_codes(const BlockShape& s, const float* x, BlockCodes& out) {
  float scale[kMaxGroups], offset[kMaxGroups];
  float largest = 0, lowest = 0;
  for (int g = 0; g < s.groups(); ++g) {
    span_group(s, x + g * s.group, scale[g], offset[g]);
    if (std::fabs(scale[g]) > std::fabs(largest)) largest = scale[g];
    lowest = std::min(lowest, offset[g]);
  }
  if (s.integer_scales()) {
    out.d = as_half(largest / float(s.min_scale < 0 ? s.min_scale : s.max_scale));
    out.m = s.has_offset ? as_half(lowest / float(s.max_offset)) : 0;
  } else {
    out.d = as_half(scale[0]);
    out.m = s.has_offset ? as_half(offset[0]) : 0;
  }
  for (int g = 0; g < s.groups(); ++g) {
    const auto code = [](float v, float unit, int lo, int hi) {
      return std::fabs(unit) < kLeast ? std::max(0, lo) : int(std::nearbyint(std::clamp(v / unit, float(lo), float(hi))));
    };
    out.scale[g] = int8_t(s.integer_scales() ? code(scale[g], out.d, s.min_scale, s.max_scale) : 1);
    out.offset[g] = uint8_t(s.integer_scales() && s.has_offset ? code(offset[g], out.m, 0, s.max_offset) : 1);
    const float unit = scale_of(s, out, g), base = offset_of(s, out, g);
    for (int i = g * s.group; i < (g + 1) * s.group; ++i)
      out.level[i] = int8_t(nearest_level(s, std::fabs(unit) < kLeast ? 0 : (x[i] - base) / unit));
  }
}

}  // namespace sluice::quant
