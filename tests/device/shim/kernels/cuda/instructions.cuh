// kernels/cuda/instructions.cuh on the emulator.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "kernels/cuda/half_words.h"

namespace sluice::kernels::cuda {

inline float exp2_fast(float v) { return std::exp2(v); }
inline uint32_t f16_pair(float low, float high) { return float_to_half(low) | uint32_t(float_to_half(high)) << 16; }
inline uint32_t bf16_pair(float low, float high) { return float_to_bf16(low) | uint32_t(float_to_bf16(high)) << 16; }
inline uint32_t f16_pair_times(uint32_t a, uint32_t b) { return half2_mul(a, b); }
inline uint32_t f16_pair_less(uint32_t a, uint32_t b) { return half2_sub(a, b); }
template <class H>
void add_zeros(uint32_t& sum, uint32_t pair) {
  constexpr uint32_t kExponent = std::is_same_v<H, __half> ? 0x7C00 : 0x7F80;
  for (int shift : {0, 16})
    if ((pair >> shift & kExponent) == kExponent) sum |= 0x7FFFu << shift;
}

inline uint32_t transposed(uint32_t v) {
  const uint8_t* told = emulator::tell(~0u, v);
  const int row = emulated_lane() / 4, column = emulated_lane() % 4 * 2;
  const auto element = [&](int r, int c) { return emulated_told<uint32_t>(told, r * 4 + c / 2) >> 16 * (c % 2) & 0xFFFF; };
  return element(column, row) | element(column + 1, row) << 16;
}

inline float half_of_pair(__half, uint32_t pair, int i) { return __half2float({uint16_t(pair >> 16 * i)}); }
inline float half_of_pair(__nv_bfloat16, uint32_t pair, int i) { return bf16_to_float(uint16_t(pair >> 16 * i)); }
// Lanes tell each other their parts as floats.
template <class H>
void mma(float c[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0, uint32_t b1) {
  struct Parts {
    float upper[4], lower[4], right[4];  // columns 2 t, 2 t + 1, and those 8 further on, t being lane % 4
  } own;
  for (int i = 0; i < 2; ++i) {
    own.upper[i] = half_of_pair(H{}, a0, i), own.upper[2 + i] = half_of_pair(H{}, a2, i);
    own.lower[i] = half_of_pair(H{}, a1, i), own.lower[2 + i] = half_of_pair(H{}, a3, i);
    own.right[i] = half_of_pair(H{}, b0, i), own.right[2 + i] = half_of_pair(H{}, b1, i);
  }
  const uint8_t* told = emulator::tell(~0u, own);
  const auto of = [&](int lane) -> const Parts& { return *reinterpret_cast<const Parts*>(told + size_t(lane) * emulator::kMostTold); };
  const int row = emulated_lane() / 4, column = emulated_lane() % 4 * 2;
  float sums[4] = {};
  for (int t = 0; t < 4; ++t) {
    const Parts &left = of(row * 4 + t), &first = of(column * 4 + t), &second = of(column * 4 + 4 + t);
    for (int i = 0; i < 4; ++i) {
      sums[0] += left.upper[i] * first.right[i], sums[1] += left.upper[i] * second.right[i];
      sums[2] += left.lower[i] * first.right[i], sums[3] += left.lower[i] * second.right[i];
    }
  }
  for (int i = 0; i < 4; ++i) c[i] += sums[i];
}
inline void mma_alone(float d[4], const uint32_t a[4], uint32_t b0, uint32_t b1) {
  d[0] = d[1] = d[2] = d[3] = 0;
  mma<__half>(d, a[0], a[1], a[2], a[3], b0, b1);
}

}  // namespace sluice::kernels::cuda
