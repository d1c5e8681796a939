// kernels/cuda/wgmma.cuh on the emulator: products with both factors in shared memory.
#pragma once
#include <cuda_fp8.h>

#include <cstring>
#include <stdexcept>

#include "base/fp8.h"
#include "kernels/cuda/half_types.cuh"
#include "kernels/cuda/pipeline.cuh"

namespace sluice::kernels::cuda {

inline float to_float(__nv_fp8_e4m3 v) { return e4m3_to_float(v.bits); }

inline uint64_t matrix_at(uint32_t address, uint32_t panel_step, uint32_t rows_step = 1024) {
  return uint64_t((address & 0x3FFFF) >> 4) | uint64_t(panel_step >> 4) << 16 | uint64_t(rows_step >> 4) << 32 | uint64_t(1) << 62;
}
inline void products_begin() {}
inline void products_commit() { emulator::products_commit(); }
template <int left> void products_wait() { emulator::products_wait(left); }
inline void publish_shared() {}
template <int n> void sums_are_there(float (&)[n]) {}

// Element `byte` / sizeof(E) of a factor's row, by the descriptor alone.
template <class E>
float element(uint64_t factor, int row, int byte) {
  if (factor >> 62 != 1) throw std::runtime_error("a factor that is not swizzled by 128 bytes");
  const uint32_t begin = uint32_t(factor & 0x3FFF) << 4, step = uint32_t(factor >> 32 & 0x3FFF) << 4;
  E v;
  std::memcpy(&v, emulator::at(emulator::swizzled(begin + uint32_t(row / 8) * step + uint32_t(row % 8) * 128 + uint32_t(byte))), sizeof v);
  return to_float(v);
}

template <class E, int n>
void multiply(float (&d)[n / 2], uint64_t a, uint64_t b, int add) {
  float* sums = d;
  const int thread = int(emulator::place.thread.x);
  emulator::product_begin([=] {
    constexpr int kDepth = 32 / int(sizeof(E));
    const int lane = thread % 32, first = thread / 32 % 4 * 16 + lane / 4;
    float rows[2][kDepth];
    for (int r = 0; r < 2; ++r)
      for (int k = 0; k < kDepth; ++k) rows[r][k] = element<E>(a, first + 8 * r, k * int(sizeof(E)));
    for (int j = 0; j < n / 8; ++j)
      for (int e = 0; e < 2; ++e) {
        float sum[2] = {};
        for (int k = 0; k < kDepth; ++k) {
          const float v = element<E>(b, 8 * j + lane % 4 * 2 + e, k * int(sizeof(E)));
          for (int r = 0; r < 2; ++r) sum[r] += rows[r][k] * v;
        }
        for (int r = 0; r < 2; ++r) {
          float& to = sums[4 * j + 2 * r + e];
          to = (add ? to : 0) + sum[r];
        }
      }
  });
}

// With a left factor in registers; not emulated.
template <class H, int n>
void multiply_held(float (&)[n / 2], const uint32_t[4], uint64_t, int) { throw std::runtime_error("a product that is not emulated"); }

}  // namespace sluice::kernels::cuda
