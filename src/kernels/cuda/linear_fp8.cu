// What stands around the library's products of fp8 weights (docs/adr/0018): rows of inputs become codes of e4m3 with a scale each,
// and sums of codes become results. Also weights with a scale a block, expanded to f16.
#include "kernels/cuda/cache.cuh"
#include "kernels/cuda/decode.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/products.h"
#include "kernels/cuda/prologue.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kThreads = kPrologueThreads;
constexpr int kHeld = 16;  // groups of eight numbers that a thread may hold

// The largest of a block's first kPrologueThreads threads; each gets it.
__device__ inline uint32_t largest_of_block(uint32_t v) {
  __shared__ uint32_t parts[kThreads / 32];
  v = __reduce_max_sync(0xFFFFFFFFu, v);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = v;
  meet<kThreads>();
#pragma unroll
  for (int i = 0; i < kThreads / 32; ++i) v = max(v, parts[i]);
  return v;
}

// A block a row, which its threads hold between finding the largest and rounding.
template <class X, int held>
__global__ void __launch_bounds__(kThreads) fp8_rows_kernel(LinearArgs a, int cols, uint8_t* codes, float* scales) {
  let_next_begin();
  wait_for_previous();
  const X* x = static_cast<const X*>(a.x.data) + size_t(blockIdx.x) * a.x_stride;
  const int first = int(threadIdx.x) * 8;
  const bool norm = a.prologue == Prologue::kRmsNorm, gate = a.prologue == Prologue::kSiluMul || a.prologue == Prologue::kGeluMul;
  float v[held][8], sum = 0;
#pragma unroll
  for (int i = 0; i < held; ++i) {
    const int k = first + i * kPrologueStep;
    if (k >= cols) break;
    load8(x + k, v[i]);
    if (gate) {
      float up[8];
      load8(x + cols + k, up);
#pragma unroll
      for (int j = 0; j < 8; ++j) v[i][j] = gated(a.prologue, v[i][j], up[j]);
    }
  }
  if (norm) {
#pragma unroll
    for (int i = 0; i < held; ++i) {
      if (first + i * kPrologueStep >= cols) break;
#pragma unroll
      for (int j = 0; j < 8; ++j) sum = fmaf(v[i][j], v[i][j], sum);
    }
    const float factor = rsqrtf(prologue_sum(sum) / float(cols) + a.eps);
#pragma unroll
    for (int i = 0; i < held; ++i) {
      const int k = first + i * kPrologueStep;
      if (k >= cols) break;
      float weight[8] = {1, 1, 1, 1, 1, 1, 1, 1};
      if (a.norm_weight) load8(a.norm_weight + k, weight);
#pragma unroll
      for (int j = 0; j < 8; ++j) v[i][j] *= factor * weight[j];
    }
  }
  uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < held; ++i) {
    if (first + i * kPrologueStep >= cols) break;
#pragma unroll
    for (int j = 0; j < 8; ++j) largest = max(largest, magnitude(v[i][j]));
  }
  largest = largest_of_block(largest);
  // A row with an infinity or NaN is one of NaNs; a row of zeros has any scale.
  const bool finite = largest < 0x7F800000u, zero = largest < 0x00800000u;
  const float scale = zero ? 1.0f : finite ? __uint_as_float(largest) * (1.0f / 448) : __uint_as_float(0x7FC00000u);
  const float factor = zero || !finite ? 0.0f : __fdividef(448.0f, __uint_as_float(largest));
#pragma unroll
  for (int i = 0; i < held; ++i) {
    const int k = first + i * kPrologueStep;
    if (k >= cols) break;
    *reinterpret_cast<uint2*>(codes + size_t(blockIdx.x) * cols + k) = eight_codes<E4m3>(v[i], factor);
  }
  if (threadIdx.x == 0) scales[blockIdx.x] = scale;
}

// A thread four neighbours of a token.
template <class Y>
__global__ void __launch_bounds__(kThreads) finish_kernel(const __grid_constant__ Output o, const float* sums, const float* token_scales) {
  let_next_begin();
  const int n = int(blockIdx.x * kThreads + threadIdx.x) * 4, t = blockIdx.y;
  if (n >= o.rows) return wait_for_previous();
  float by[4] = {1, 1, 1, 1}, plus[4] = {};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (token_scales) by[i] = o.scales[n + i];
    if (o.bias) plus[i] = o.bias[n + i];
  }
  wait_for_previous();
  Y* y = reinterpret_cast<Y*>(o.y) + size_t(t) * o.y_stride + n;
  const float scale = token_scales ? __ldcg(token_scales + t) : 1.0f;
  float v[4];
  const auto load = [&](const Y* from, float out[4]) {
    if constexpr (sizeof(Y) == 4) {
      const float4 f = __ldcg(reinterpret_cast<const float4*>(from));
      out[0] = f.x, out[1] = f.y, out[2] = f.z, out[3] = f.w;
    } else {
      const uint2 words = __ldcg(reinterpret_cast<const uint2*>(from));
      const Y* h = reinterpret_cast<const Y*>(&words);
#pragma unroll
      for (int i = 0; i < 4; ++i) out[i] = to_float(h[i]);
    }
  };
  if (sums) {
    const float4 f = __ldcg(reinterpret_cast<const float4*>(sums + size_t(t) * o.rows + n));
    v[0] = f.x, v[1] = f.y, v[2] = f.z, v[3] = f.w;
  } else {
    load(y, v);
  }
  if (sums && o.accumulate) {
    float before[4];
    load(y, before);
#pragma unroll
    for (int i = 0; i < 4; ++i) plus[i] += before[i];
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) v[i] = fmaf(v[i], scale * by[i], plus[i]);
  if constexpr (sizeof(Y) == 4) *reinterpret_cast<float4*>(y) = {v[0], v[1], v[2], v[3]};
  else *reinterpret_cast<uint2*>(y) = make_uint2(pair_of<Y>(v[0], v[1]), pair_of<Y>(v[2], v[3]));
}

__global__ void __launch_bounds__(kThreads) expand_kernel(const __grid_constant__ Output o, int cols, int begin, __half* to) {
  const int k = int(blockIdx.x * kThreads + threadIdx.x) * 8, row = begin + int(blockIdx.y);
  if (k >= cols) return;
  float w[8];
  fp8_eight(reinterpret_cast<const uint32_t*>(o.weight + size_t(row) * cols + k), o.scales[size_t(row) * (cols / o.scale_cols) + k / o.scale_cols], w);
  store8(to + size_t(blockIdx.y) * cols + k, w);
}

template <class X>
void launch_rows(CudaContext* c, const LinearArgs& a, int cols, uint8_t* codes, float* scales) {
  const auto kernel = cols <= 2 * kPrologueStep ? fp8_rows_kernel<X, 2> : cols <= 8 * kPrologueStep ? fp8_rows_kernel<X, 8> : fp8_rows_kernel<X, kHeld>;
  note(c, launch_early({c, a.num_tokens}, dim3(unsigned(a.num_tokens)), kThreads, 0, kernel, a, cols, codes, scales));
}

}  // namespace

bool fp8_rows_take(int cols) noexcept { return cols % 16 == 0 && cols <= kHeld * kPrologueStep; }

Fp8Inputs prepare_fp8(CudaContext* c, const LinearArgs& a, int cols) noexcept {
  auto* codes = reinterpret_cast<uint8_t*>(c->inputs);
  auto* scales = reinterpret_cast<float*>(codes + (size_t(a.num_tokens) * cols + 15) / 16 * 16);
  if (a.x.type == DType::kF32) launch_rows<float>(c, a, cols, codes, scales);
  else if (a.x.type == DType::kF16) launch_rows<__half>(c, a, cols, codes, scales);
  else launch_rows<__nv_bfloat16>(c, a, cols, codes, scales);
  return {codes, scales};
}

void finish_fp8(CudaContext* c, const Output& o, int tokens, const float* sums, const float* token_scales) noexcept {
  const dim3 grid(unsigned((o.rows / 4 + kThreads - 1) / kThreads), unsigned(tokens));
  const auto kernel = o.y_type == DType::kF32 ? finish_kernel<float> : finish_kernel<__nv_bfloat16>;
  note(c, launch_early({c, tokens}, grid, kThreads, 0, kernel, o, sums, token_scales));
}

void expand_fp8(CudaContext* c, const Output& o, int cols, int begin, int end, void* to) noexcept {
  const dim3 grid(unsigned((cols / 8 + kThreads - 1) / kThreads), unsigned(end - begin));
  launch(c, grid, kThreads, expand_kernel, o, cols, begin, static_cast<__half*>(to));
}

}  // namespace sluice::kernels::cuda
