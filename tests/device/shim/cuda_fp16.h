// f16 on a host.
#pragma once
#include <array>

#include "base/half.h"
#include "cuda_runtime.h"

struct __half { uint16_t bits; };
struct alignas(4) __half2 { __half x, y; };

// Kernels read so many of them that a table is worth it.
inline const std::array<float, 65536>& emulated_halves() {
  static const auto all = [] {
    std::array<float, 65536> v;
    for (size_t i = 0; i < v.size(); ++i) v[i] = sluice::half_to_float(uint16_t(i));
    return v;
  }();
  return all;
}
inline const float* const kEmulatedHalves = emulated_halves().data();
inline float __half2float(__half v) { return kEmulatedHalves[v.bits]; }
inline __half __float2half_rn(float v) { return {sluice::float_to_half(v)}; }
inline __half __ushort_as_half(unsigned short v) { return {v}; }
inline float __low2float(__half2 v) { return __half2float(v.x); }
inline float __high2float(__half2 v) { return __half2float(v.y); }
inline float2 __half22float2(__half2 v) { return {__half2float(v.x), __half2float(v.y)}; }
