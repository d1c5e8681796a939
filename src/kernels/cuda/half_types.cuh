// f16 and bf16 behind one set of names.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/abi.h"
#include "kernels/cuda/instructions.cuh"

namespace sluice::kernels::cuda {

__device__ inline float to_float(float v) { return v; }
__device__ inline float to_float(__half v) { return __half2float(v); }
__device__ inline float to_float(__nv_bfloat16 v) { return __bfloat162float(v); }

// Element i of an array of any type.
template <class A>
__device__ inline float element_of(const A& a, size_t i) {
  switch (a.type) {
    case DType::kF32: return __ldcg(static_cast<const float*>(a.data) + i);
    case DType::kF16: return to_float(__ldcg(static_cast<const __half*>(a.data) + i));
    case DType::kBF16: return to_float(__ldcg(static_cast<const __nv_bfloat16*>(a.data) + i));
  }
  return 0;
}

// Clamped to f16's range: an infinite input, key or value would spoil everything after it. (A NaN stays one.)
template <class T> __device__ T from_float(float v);
template <> __device__ inline float from_float<float>(float v) { return v; }
template <> __device__ inline __half from_float<__half>(float v) {
  return __float2half_rn(v > 65504.0f ? 65504.0f : v < -65504.0f ? -65504.0f : v);
}
template <> __device__ inline __nv_bfloat16 from_float<__nv_bfloat16>(float v) { return __float2bfloat16_rn(v); }

template <class H> __host__ __device__ constexpr DType dtype_of();
template <> __host__ __device__ constexpr DType dtype_of<__half>() { return DType::kF16; }
template <> __host__ __device__ constexpr DType dtype_of<__nv_bfloat16>() { return DType::kBF16; }

// Two neighbours in a register, the first in the low half, of numbers that are known to be in range.
template <class H> __device__ uint32_t pair_in_range(float low, float high);
template <> __device__ inline uint32_t pair_in_range<__half>(float low, float high) { return f16_pair(low, high); }
template <> __device__ inline uint32_t pair_in_range<__nv_bfloat16>(float low, float high) { return bf16_pair(low, high); }

// The same, clamped as from_float does.
template <class H> __device__ inline uint32_t pair_of(float low, float high);
template <> __device__ inline uint32_t pair_of<__half>(float low, float high) {
  const auto clamped = [](float v) { return v > 65504.0f ? 65504.0f : v < -65504.0f ? -65504.0f : v; };
  return pair_in_range<__half>(clamped(low), clamped(high));
}
template <> __device__ inline uint32_t pair_of<__nv_bfloat16>(float low, float high) { return pair_in_range<__nv_bfloat16>(low, high); }

// Eight neighbours of f16 or bf16, rounded to H.
template <class H>
__device__ inline uint4 eight_rounded(uint4 words, DType type) {
  if (type == dtype_of<H>()) return words;
  const auto pair = [&](uint32_t w) {
    if (type == DType::kF16) return pair_of<H>(__low2float(reinterpret_cast<const __half2&>(w)), __high2float(reinterpret_cast<const __half2&>(w)));
    return pair_of<H>(__low2float(reinterpret_cast<const __nv_bfloat162&>(w)), __high2float(reinterpret_cast<const __nv_bfloat162&>(w)));
  };
  return make_uint4(pair(words.x), pair(words.y), pair(words.z), pair(words.w));
}
// Eight neighbours of an array of any type, rounded to H.
template <class H>
__device__ inline uint4 eight_of(const ConstArray& a, size_t i) {
  if (a.type == DType::kF32) {
    const auto* p = reinterpret_cast<const float4*>(static_cast<const float*>(a.data) + i);
    const float4 x = __ldcg(p), y = __ldcg(p + 1);
    return make_uint4(pair_of<H>(x.x, x.y), pair_of<H>(x.z, x.w), pair_of<H>(y.x, y.y), pair_of<H>(y.z, y.w));
  }
  return eight_rounded<H>(__ldcg(reinterpret_cast<const uint4*>(static_cast<const __half*>(a.data) + i)), a.type);
}
// To element i of an array of any type.
__device__ inline void store_element(void* data, DType type, size_t i, float v) {
  switch (type) {
    case DType::kF32: static_cast<float*>(data)[i] = v; return;
    case DType::kF16: static_cast<__half*>(data)[i] = from_float<__half>(v); return;
    case DType::kBF16: static_cast<__nv_bfloat16*>(data)[i] = from_float<__nv_bfloat16>(v); return;
  }
}
__device__ inline void store_element(const Array& a, size_t i, float v) { store_element(a.data, a.type, i, v); }
// Two neighbours to an array of any type.
__device__ inline void store_pair(const Array& a, size_t i, float low, float high) {
  switch (a.type) {
    case DType::kF32: *reinterpret_cast<float2*>(static_cast<float*>(a.data) + i) = {low, high}; return;
    case DType::kF16: *reinterpret_cast<uint32_t*>(static_cast<__half*>(a.data) + i) = pair_of<__half>(low, high); return;
    case DType::kBF16: *reinterpret_cast<uint32_t*>(static_cast<__nv_bfloat16*>(a.data) + i) = pair_of<__nv_bfloat16>(low, high); return;
  }
}

}  // namespace sluice::kernels::cuda
