// kernels/cuda/half_types.cuh on the emulator, as far as its kernels need it.
#pragma once
#include <cuda_runtime_api.h>

#include <algorithm>

#include "base/fp8.h"
#include "base/half.h"

struct __half { uint16_t bits; };
struct __nv_bfloat16 { uint16_t bits; };
struct __nv_fp8_e4m3 { uint8_t bits; };

namespace sluice::kernels::cuda {

inline float to_float(float v) { return v; }
inline float to_float(__half v) { return half_to_float(v.bits); }
inline float to_float(__nv_bfloat16 v) { return bf16_to_float(v.bits); }
inline float to_float(__nv_fp8_e4m3 v) { return e4m3_to_float(v.bits); }
template <class T> T from_float(float v);
template <> inline float from_float<float>(float v) { return v; }
template <> inline __half from_float<__half>(float v) { return {float_to_half(std::clamp(v, -65504.0f, 65504.0f))}; }
template <> inline __nv_bfloat16 from_float<__nv_bfloat16>(float v) { return {float_to_bf16(v)}; }
template <class H> uint32_t pair_of(float low, float high);
template <>
inline uint32_t pair_of<__half>(float low, float high) {
  return float_to_half(std::clamp(low, -65504.0f, 65504.0f)) | uint32_t(float_to_half(std::clamp(high, -65504.0f, 65504.0f))) << 16;
}
template <>
inline uint32_t pair_of<__nv_bfloat16>(float low, float high) { return float_to_bf16(low) | uint32_t(float_to_bf16(high)) << 16; }

}  // namespace sluice::kernels::cuda
