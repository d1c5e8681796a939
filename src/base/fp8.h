// FP8 e4m3 ("fn": finite, no infinity) as bits: sign, 4 bits of exponent with bias 7, 3 of mantissa; arXiv:2209.05433.
// Largest 448, smallest subnormal 2^-9; 0x7F and 0xFF are NaN. Exact widening; narrowing rounds to nearest even and saturates.
#pragma once
#include <bit>
#include <cstdint>

namespace sluice {

constexpr float kE4m3Max = 448.0f;

inline bool e4m3_is_nan(uint8_t v) { return (v & 0x7Fu) == 0x7Fu; }

inline float e4m3_to_float(uint8_t v) {
  const uint32_t sign = uint32_t(v & 0x80u) << 24, exp = (v >> 3) & 15u, mant = v & 7u;
  if (e4m3_is_nan(v)) return std::bit_cast<float>(sign | 0x7FC00000u);
  if (exp == 0) return std::bit_cast<float>(std::bit_cast<uint32_t>(float(mant) * 0x1p-9f) | sign);
  return std::bit_cast<float>(sign | ((exp + 120) << 23) | (mant << 20));
}

inline uint8_t float_to_e4m3(float f) {
  const uint32_t x = std::bit_cast<uint32_t>(f), a = x & 0x7FFFFFFFu;
  const auto sign = uint8_t((x >> 24) & 0x80u);
  if (a > 0x7F800000u) return sign | 0x7Fu;
  if (a >= std::bit_cast<uint32_t>(kE4m3Max)) return sign | 0x7Eu;
  if (a < 0x3C800000u) {  // below 2^-6, a subnormal result: let the FPU round at the right place
    const float r = std::bit_cast<float>(a) + 0x1p14f;  // whose unit in the last place is 2^-9
    return sign | uint8_t(std::bit_cast<uint32_t>(r) - std::bit_cast<uint32_t>(0x1p14f));
  }
  const uint32_t odd = (a >> 20) & 1u;
  return sign | uint8_t((a - 0x3C000000u + 0x7FFFFu + odd) >> 20);
}

}  // namespace sluice
