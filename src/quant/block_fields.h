// Reading fields out of packed weight blocks. Shared by formats/*.cpp.
#pragma once
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

}  // namespace sluice::quant
