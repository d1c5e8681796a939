// Reading and writing fields of packed weight blocks. Shared by formats/*.cpp.
#pragma once
#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/half.h"

namespace sluice::quant {

inline float half_at(const uint8_t* p) {
  uint16_t h;
  std::memcpy(&h, p, 2);
  return half_to_float(h);
}

inline void put_half(uint8_t* p, float v) {
  const uint16_t h = float_to_half(v);
  std::memcpy(p, &h, 2);
}

// Scale and minimum of group g (0..7) out of the 12 packed bytes of Q4_K and Q5_K, 6 bits each.
inline void group_scale(const uint8_t* s, int g, int& scale, int& min) {
  if (g < 4) {
    scale = s[g] & 63;
    min = s[g + 4] & 63;
  } else {
    scale = (s[g + 4] & 15) | ((s[g - 4] >> 6) << 4);
    min = (s[g + 4] >> 4) | ((s[g] >> 6) << 4);
  }
}

// The inverse: writes the 12 bytes of 8 groups.
inline void put_group_scales(uint8_t* s, const int8_t* scale, const uint8_t* min) {
  for (int g = 0; g < 4; ++g) {
    s[g] = uint8_t(scale[g] | (scale[g + 4] >> 4) << 6);
    s[g + 4] = uint8_t(min[g] | (min[g + 4] >> 4) << 6);
    s[g + 8] = uint8_t((scale[g + 4] & 15) | (min[g + 4] & 15) << 4);
  }
}

// 32 values of 4 bits in 16 bytes: i in the low half and i + 16 in the high half of byte i.
inline void put_nibbles(uint8_t* p, const uint8_t* q) {
  for (int i = 0; i < 16; ++i) p[i] = uint8_t((q[i] & 15) | (q[i + 16] & 15) << 4);
}
// Bit 4 of 32 values, as a little-endian word.
inline void put_fifth_bits(uint8_t* p, const uint8_t* q) {
  std::memset(p, 0, 4);
  for (int i = 0; i < 32; ++i) p[i / 8] |= uint8_t((q[i] >> 4 & 1) << (i % 8));
}

// Of the plain encoders: 1 / d, or 0 where that is no number.
inline float inverse_or_zero(float d) {
  const float inverse = d == 0 ? 0 : 1 / d;
  return std::isfinite(inverse) ? inverse : 0;
}
// The value furthest from zero, with its sign; the first of equals.
inline float furthest(const float* x, int n) {
  float best = x[0];
  for (int i = 1; i < n; ++i)
    if (std::fabs(x[i]) > std::fabs(best)) best = x[i];
  return best;
}

}  // namespace sluice::quant
