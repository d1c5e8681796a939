// IEEE half and bfloat16 as bits: exact widening, round to nearest even narrowing. Scalar; kernels have their own.
#pragma once
#include <bit>
#include <cstdint>

namespace sluice {

inline float half_to_float(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000u) << 16;
  const uint32_t exp = (h >> 10) & 0x1Fu;
  const uint32_t mant = h & 0x3FFu;
  if (exp == 0) {  // zero or subnormal: mant * 2^-24 is exact in float
    const float v = float(mant) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(v) | sign);
  }
  if (exp == 31) return std::bit_cast<float>(sign | 0x7F800000u | (mant << 13));
  return std::bit_cast<float>(sign | ((exp + 112) << 23) | (mant << 13));
}

inline uint16_t float_to_half(float f) {
  const uint32_t x = std::bit_cast<uint32_t>(f);
  const uint16_t sign = uint16_t((x >> 16) & 0x8000u);
  const uint32_t a = x & 0x7FFFFFFFu;
  if (a > 0x7F800000u) return sign | 0x7E00u;
  if (a >= 0x477FF000u) return sign | 0x7C00u;  // rounds to or beyond infinity
  if (a < 0x38800000u) {                        // subnormal result: let the FPU round at the right place
    const float r = std::bit_cast<float>(a) + 0.5f;
    return sign | uint16_t(std::bit_cast<uint32_t>(r) - 0x3F000000u);
  }
  const uint32_t odd = (a >> 13) & 1u;
  return sign | uint16_t((a - 0x38000000u + 0xFFFu + odd) >> 13);
}

inline float bf16_to_float(uint16_t h) { return std::bit_cast<float>(uint32_t(h) << 16); }

inline uint16_t float_to_bf16(float f) {
  const uint32_t x = std::bit_cast<uint32_t>(f);
  if ((x & 0x7FFFFFFFu) > 0x7F800000u) return uint16_t((x >> 16) | 0x40u);
  return uint16_t((x + 0x7FFFu + ((x >> 16) & 1u)) >> 16);
}

}  // namespace sluice
