// What is done to a row of inputs before a product, by the first kPrologueThreads threads of a block in one order of folding, so that a
// row comes out the same to the bit whichever kernel prepares it. Rows and
// norm weights are whole groups of eight floats at 16-byte addresses.
#pragma once
#include "kernels/abi.h"
#include "kernels/cuda/gate.cuh"
#include "kernels/cuda/half_types.cuh"
#include "kernels/cuda/pipeline.cuh"
#include "kernels/cuda/reduce.cuh"

namespace sluice::kernels::cuda {

constexpr int kPrologueThreads = 256, kPrologueStep = kPrologueThreads * 8;

__device__ inline void load8(const float* p, float v[8]) {
  const float4 a = __ldcg(reinterpret_cast<const float4*>(p)), b = __ldcg(reinterpret_cast<const float4*>(p) + 1);
  v[0] = a.x, v[1] = a.y, v[2] = a.z, v[3] = a.w, v[4] = b.x, v[5] = b.y, v[6] = b.z, v[7] = b.w;
}

template <class H>
__device__ inline void load8(const H* p, float v[8]) {
  const uint4 words = __ldcg(reinterpret_cast<const uint4*>(p));
  const H* h = reinterpret_cast<const H*>(&words);
#pragma unroll
  for (int i = 0; i < 8; ++i) v[i] = to_float(h[i]);
}

// Elements [i, i + 8) of an array of any type.
template <class A>
__device__ inline void load_floats(const A& a, size_t i, float v[8]) {
  if (a.type == DType::kF32) load8(static_cast<const float*>(a.data) + i, v);
  else if (a.type == DType::kF16) load8(static_cast<const __half*>(a.data) + i, v);
  else load8(static_cast<const __nv_bfloat16*>(a.data) + i, v);
}

__device__ inline void store8(float* to, const float v[8]) {
  reinterpret_cast<float4*>(to)[0] = {v[0], v[1], v[2], v[3]};
  reinterpret_cast<float4*>(to)[1] = {v[4], v[5], v[6], v[7]};
}
template <class H>
__device__ inline void store8(H* to, const float v[8]) {
  *reinterpret_cast<uint4*>(to) = make_uint4(pair_of<H>(v[0], v[1]), pair_of<H>(v[2], v[3]), pair_of<H>(v[4], v[5]), pair_of<H>(v[6], v[7]));
}

// Rounds v to H, and what is left to further parts; part p goes to `to` + p * part_stride.
template <class H, int parts>
__device__ inline void store_parts(H* to, size_t part_stride, const float v[8]) {
  float rest[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) rest[i] = v[i];
#pragma unroll
  for (int part = 0; part < parts; ++part) {
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[i] = pair_of<H>(rest[2 * i], rest[2 * i + 1]);
      if (parts > 1) {
        const H* h = reinterpret_cast<const H*>(&words[i]);
        rest[2 * i] -= to_float(h[0]), rest[2 * i + 1] -= to_float(h[1]);
      }
    }
    *reinterpret_cast<uint4*>(to + part * part_stride) = make_uint4(words[0], words[1], words[2], words[3]);
  }
}

// Of the first kPrologueThreads threads; each gets it.
__device__ inline float prologue_sum(float v) {
  __shared__ float parts[kPrologueThreads / 32];
  v = warp_sum(v);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = v;
  meet<kPrologueThreads>();
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kPrologueThreads / 32; ++i) sum += parts[i];
  meet<kPrologueThreads>();
  return sum;
}

__device__ inline float gated(Prologue prologue, float v, float up) { return gated(prologue == Prologue::kSiluMul ? Gate::kSilu : Gate::kGelu, v, up); }

struct NoWait {
  __device__ void operator()() const {}
};

// emit(k, v): elements [k, k + 8) of the row. x: the row, of cols floats (2 cols for the gated prologues). Blocks may share
// a row that has no norm: this is number `share` of `shares`. kHeld: groups that a thread holds between the sum and the scaling
// (of no matter for the result; what is held takes registers). wait(): until x is there; the norm's weights need not wait.
template <int kHeld = 4, class Emit, class Wait = NoWait>
__device__ inline void prepare_row(Prologue prologue, const float* x, int cols, const float* norm_weight, float eps, int share, int shares,
                                   Emit emit, Wait wait = {}) {
  constexpr int kStep = kPrologueStep;
  const int first = int(threadIdx.x) * 8;
  if (prologue != Prologue::kRmsNorm) {
    wait();
    for (int k = first + share * kStep; k < cols; k += shares * kStep) {
      float v[8], up[8];
      load8(x + k, v);
      if (prologue != Prologue::kNone) {
        load8(x + cols + k, up);
#pragma unroll
        for (int i = 0; i < 8; ++i) v[i] = gated(prologue, v[i], up[i]);
      }
      emit(k, v);
    }
    return;
  }
  float held[kHeld][8], weight[kHeld][8], sum = 0;
  const auto load_weight = [&](int k, float w[8]) {
    if (norm_weight) return load8(norm_weight + k, w);
#pragma unroll
    for (int i = 0; i < 8; ++i) w[i] = 1;
  };
  const auto add = [&](const float v[8]) {
#pragma unroll
    for (int i = 0; i < 8; ++i) sum = fmaf(v[i], v[i], sum);
  };
#pragma unroll
  for (int i = 0; i < kHeld; ++i)
    if (first + i * kStep < cols) load_weight(first + i * kStep, weight[i]);
  wait();
#pragma unroll
  for (int i = 0; i < kHeld; ++i)
    if (first + i * kStep < cols) load8(x + first + i * kStep, held[i]);
#pragma unroll
  for (int i = 0; i < kHeld; ++i)
    if (first + i * kStep < cols) add(held[i]);
  for (int k = first + kHeld * kStep; k < cols; k += kStep) {
    float v[8];
    load8(x + k, v);
    add(v);
  }
  const float factor = rsqrtf(prologue_sum(sum) / float(cols) + eps);
  const auto finish = [&](int k, float v[8], const float w[8]) {
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] *= factor * w[i];
    emit(k, v);
  };
#pragma unroll
  for (int i = 0; i < kHeld; ++i)
    if (first + i * kStep < cols) finish(first + i * kStep, held[i], weight[i]);
  for (int k = first + kHeld * kStep; k < cols; k += kStep) {
    float v[8], w[8];
    load8(x + k, v);
    load_weight(k, w);
    finish(k, v, w);
  }
}

}  // namespace sluice::kernels::cuda
