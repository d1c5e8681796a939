// Codes of e4m3 as f16, which holds them exactly, and floats as codes: base/fp8.h, bit for bit. Hardware has both from 8.9 on.
#pragma once
#include <cstdint>

#include "kernels/cuda/instructions.cuh"

namespace sluice::kernels::cuda {

// The two codes of a half word, the lower one in the lower half.
__device__ inline uint32_t halves_of_codes(uint16_t codes) {
  uint32_t pair;
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(codes));
#else
  // An exponent's bias is 7, and f16's 15: 2^8 makes up for it, of subnormal codes too. Code 0x7F is NaN, which carries into bit 14 here.
  const uint32_t high = __byte_perm(codes, 0, 0x1404), magnitude = (high & 0x7F007F00u) >> 1;
  const uint32_t nan = ((magnitude + 0x00800080u) >> 14 & 0x00010001u) * 0x7FFFu, two_to_8 = 0x5C005C00u;
  pair = f16_pair_times(magnitude, two_to_8) | nan | (high & 0x80008000u);
#endif
  return pair;
}

// Four codes, the lower two in `low`.
__device__ inline void halves_of_codes(uint32_t codes, uint32_t& low, uint32_t& high) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
  asm("{ .reg .b16 l, h; mov.b32 {l, h}, %2; cvt.rn.f16x2.e4m3x2 %0, l; cvt.rn.f16x2.e4m3x2 %1, h; }" : "=r"(low), "=r"(high) : "r"(codes));
#else
  low = halves_of_codes(uint16_t(codes)), high = halves_of_codes(uint16_t(codes >> 16));
#endif
}

// Rounded to even; past 448 it is 448, and NaN 0x7F.
__device__ inline uint8_t code_of_float(float v) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
  uint16_t pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(v));
  return uint8_t(pair);
#else
  const uint32_t bits = __float_as_uint(v), magnitude = bits & 0x7FFFFFFFu, sign = bits >> 24 & 0x80u;
  if (magnitude > 0x7F800000u) return 0x7F;
  if (magnitude >= 0x43E00000u) return uint8_t(sign | 0x7E);  // 448
  if (magnitude < 0x3C800000u) return uint8_t(sign | uint32_t(__float2int_rn(__uint_as_float(magnitude) * 512.0f)));  // 2^-6: subnormal codes
  return uint8_t(sign | (((magnitude + 0x7FFFFu + (magnitude >> 20 & 1)) >> 20) - ((127 - 7) << 3)));
#endif
}

}  // namespace sluice::kernels::cuda
