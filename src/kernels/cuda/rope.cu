// Rotation of queries and keys, and the cache: keys and values go there, blocks are copied there.
#include "kernels/cuda/cache.cuh"
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/half_types.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kWarps = 8;

// A warp a token's head: query heads first, then KV heads, which take their values along.
template <class T>
__global__ void __launch_bounds__(kWarps * 32) rope_kernel(const __grid_constant__ RopeAppendArgs a) {
  __shared__ float heads[kWarps][kMaxHeadDim];
  let_next_begin();
  const int h = blockIdx.y * kWarps + threadIdx.x / 32, lane = threadIdx.x % 32, t = blockIdx.x;
  wait_for_previous();
  if (h >= a.q_heads + a.kv_heads) return;
  float* head = heads[threadIdx.x / 32];
  const int position = a.batch.positions[t], dim = a.head_dim, half = a.rope_dims / 2, g = h - a.q_heads;
  const bool is_query = g < 0;
  float* x = is_query ? a.q + size_t(t) * a.q_stride + size_t(h) * dim : a.k + size_t(t) * a.k_stride + size_t(g) * dim;
  const float* weight = is_query ? a.q_norm : a.k_norm;
  for (int i = lane; i < dim; i += 32) head[i] = __ldcg(x + i);
  if (weight) {
    double sum = 0;
    for (int i = lane; i < dim; i += 32) sum += double(head[i]) * head[i];
    const double factor = 1.0 / sqrt(warp_sum(sum) / dim + a.eps);
    for (int i = lane; i < dim; i += 32) head[i] = float(head[i] * factor * weight[i]);
  }
  __syncwarp();
  for (int i = lane; i < half; i += 32) {
    const float c = a.cos_table[size_t(position) * half + i], s = a.sin_table[size_t(position) * half + i];
    const int lo = a.style == RopeStyle::kHalves ? i : 2 * i, hi = a.style == RopeStyle::kHalves ? i + half : 2 * i + 1;
    const float x0 = head[lo], x1 = head[hi];
    head[lo] = x0 * c - x1 * s;
    head[hi] = x0 * s + x1 * c;
  }
  __syncwarp();
  if (is_query) {
    for (int i = lane; i < dim; i += 32) x[i] = head[i];
    return;
  }
  const size_t at = cache_at(a.batch, a.cache.block_stride / sizeof(T), a.batch.sequence_of[t], position, g, dim);
  const float* v = a.v + size_t(t) * a.v_stride + size_t(g) * dim;
  for (int i = lane; i < dim; i += 32) {
    static_cast<T*>(a.cache.keys)[at + i] = from_float<T>(head[i]);
    static_cast<T*>(a.cache.values)[at + i] = from_float<T>(__ldcg(v + i));
  }
}

}  // namespace

void rope_append(Context* context, const RopeAppendArgs& a) noexcept {
  CudaContext* c = of(context);
  if (a.batch.num_tokens <= 0 || !begin(c)) return;
  const dim3 grid(unsigned(a.batch.num_tokens), unsigned((a.q_heads + a.kv_heads + kWarps - 1) / kWarps));
  const auto go = [&](auto kernel) { note(c, launch_early(c->stream, grid, kWarps * 32, 0, kernel, a)); };
  switch (a.cache.dtype) {
    case DType::kF32: go(rope_kernel<float>); break;
    case DType::kF16: go(rope_kernel<__half>); break;
    case DType::kBF16: go(rope_kernel<__nv_bfloat16>); break;
  }
}

void copy_block(Context* context, const CopyBlockArgs& a) noexcept {
  CudaContext* c = of(context);
  if (!begin(c)) return;
  const size_t n = a.from_cache.block_stride;
  const auto copy = [&](void* to, const void* from) {
    note(c, cudaMemcpyAsync(static_cast<char*>(to) + size_t(a.to) * n, static_cast<const char*>(from) + size_t(a.from) * n, n, cudaMemcpyDefault, c->stream));
  };
  copy(a.to_cache.keys, a.from_cache.keys);
  copy(a.to_cache.values, a.from_cache.values);
}

}  // namespace sluice::kernels::cuda
