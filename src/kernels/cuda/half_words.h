// Two f16 in a word, and what else tiles are read with. On a host the same numbers by plain code, so that tests there read tiles as the device does.
#pragma once
#include <cstdint>

#ifdef __CUDACC__
#include <cuda_fp16.h>
#define SLUICE_DEVICE __device__
#define SLUICE_ANYWHERE __host__ __device__
#define SLUICE_UNROLL _Pragma("unroll")
#else
#include <bit>
#include <cmath>
#include <cstring>

#include "base/half.h"
#define SLUICE_DEVICE
#define SLUICE_ANYWHERE
#define SLUICE_UNROLL
#endif

namespace sluice::kernels::cuda {

#ifdef __CUDACC__
__device__ inline float half_bits(uint32_t v) { return __half2float(__ushort_as_half(static_cast<unsigned short>(v))); }
__device__ inline uint32_t half2_sub(uint32_t a, uint32_t b) {
  const __half2 v = __hsub2(*reinterpret_cast<const __half2*>(&a), *reinterpret_cast<const __half2*>(&b));
  return *reinterpret_cast<const uint32_t*>(&v);
}
__device__ inline uint32_t half2_mul(uint32_t a, uint32_t b) {
  const __half2 v = __hmul2(*reinterpret_cast<const __half2*>(&a), *reinterpret_cast<const __half2*>(&b));
  return *reinterpret_cast<const uint32_t*>(&v);
}
__device__ inline uint32_t half2_fma(uint32_t a, uint32_t b, uint32_t c) {
  const __half2 v = __hfma2(*reinterpret_cast<const __half2*>(&a), *reinterpret_cast<const __half2*>(&b), *reinterpret_cast<const __half2*>(&c));
  return *reinterpret_cast<const uint32_t*>(&v);
}
// (a & b) | c, which the compiler makes two of where b and c are constants.
__device__ inline uint32_t and_or(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t v;
  asm("lop3.b32 %0, %1, %2, %3, 0xEA;" : "=r"(v) : "r"(a), "r"(b), "r"(c));
  return v;
}
// Four bytes of a (0..3) and b (4..7), by the low three bits of s's four lowest nibbles.
__device__ inline uint32_t bytes_of(uint32_t a, uint32_t b, uint32_t s) { return __byte_perm(a, b, s); }
__device__ inline uint32_t word_of(const uint8_t* p) { return *reinterpret_cast<const uint32_t*>(p); }  // at a multiple of four
__device__ inline float word_float(uint32_t v) { return __uint_as_float(v); }
// Rounded by themselves.
__device__ inline float times(float a, float b) { return __fmul_rn(a, b); }
__device__ inline float less(float a, float b) { return __fsub_rn(a, b); }
__device__ inline float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
#else
inline float half_bits(uint32_t v) { return half_to_float(uint16_t(v)); }
inline uint32_t half2_fma(uint32_t a, uint32_t b, uint32_t c) {
  const auto one = [&](int shift) {
    const auto of = [&](uint32_t w) { return double(half_to_float(uint16_t(w >> shift))); };
    return uint32_t(float_to_half(float(of(a) * of(b) + of(c)))) << shift;
  };
  return one(0) | one(16);
}
inline uint32_t half2_sub(uint32_t a, uint32_t b) { return half2_fma(a, 0x3C003C00u, b ^ 0x80008000u); }
inline uint32_t half2_mul(uint32_t a, uint32_t b) { return half2_fma(a, b, 0x80008000u); }
inline uint32_t and_or(uint32_t a, uint32_t b, uint32_t c) { return (a & b) | c; }
inline uint32_t bytes_of(uint32_t a, uint32_t b, uint32_t s) {
  uint32_t v = 0;
  for (int i = 0; i < 4; ++i) v |= uint32_t((uint64_t{b} << 32 | a) >> 8 * (s >> 4 * i & 7) & 255) << 8 * i;
  return v;
}
inline uint32_t word_of(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, 4);
  return v;
}
inline float word_float(uint32_t v) { return std::bit_cast<float>(v); }
inline float times(float a, float b) { return a * b; }
inline float less(float a, float b) { return a - b; }
inline float fused(float a, float b, float c) { return std::fma(a, b, c); }
#endif

// A scale times byte i of a word, and times a signed one, without the slow conversion: 0x4B0000xx is 2^23 + xx as a float. An f16 times a byte is exact, so
// this is the product to the bit, but that a zero has no sign.
SLUICE_DEVICE inline float byte_word(uint32_t v, int i) { return word_float(bytes_of(v, 0x4B000000u, 0x7440u | uint32_t(i))); }
SLUICE_DEVICE inline float times_byte(float scale, uint32_t v, int i) { return fused(scale, byte_word(v, i), times(scale, -8388608.0f)); }
SLUICE_DEVICE inline float times_signed_byte(float scale, uint32_t v, int i) { return times(scale, less(byte_word(v ^ 0x80808080u, i), 8388736.0f)); }

}  // namespace sluice::kernels::cuda
