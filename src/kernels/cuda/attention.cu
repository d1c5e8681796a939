// Cache layout here: keys and values [G][block_tokens][D] in a block. Attention: a block of eight warps for each query head
// of each token; warp w takes the tiles of 32 positions with index = w mod 8, so that what a token's result is folded from
// depends on its position alone. In a tile a lane scores one key, then the lanes share the value's elements.
#include <algorithm>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/half_types.cuh"
#include "kernels/cuda/reduce.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kWarps = 8;

// Element (g, slot, 0) of the block that holds `position` of sequence s, in elements from the cache's start.
__device__ inline size_t cache_at(const BatchView& b, size_t block_elements, int s, int position, int g, int dim) {
  const int block = b.block_ids[b.block_begin[s] + position / b.block_tokens];
  return size_t(block) * block_elements + (size_t(g) * b.block_tokens + position % b.block_tokens) * dim;
}

// A block a token and head: query heads first, then KV heads, which take their values along.
template <class T>
__global__ void rope_kernel(RopeAppendArgs a) {
  __shared__ float head[kMaxHeadDim];
  const int t = blockIdx.x, position = a.batch.positions[t], dim = a.head_dim, half = a.rope_dims / 2;
  const bool is_query = int(blockIdx.y) < a.q_heads;
  const int g = blockIdx.y - a.q_heads;
  float* x = is_query ? a.q + size_t(t) * a.q_stride + size_t(blockIdx.y) * dim : a.k + size_t(t) * a.k_stride + size_t(g) * dim;
  const float* weight = is_query ? a.q_norm : a.k_norm;
  for (int i = threadIdx.x; i < dim; i += blockDim.x) head[i] = x[i];
  __syncthreads();
  if (weight) {
    double sum = 0;
    for (int i = threadIdx.x; i < dim; i += blockDim.x) sum += double(head[i]) * head[i];
    const double factor = 1.0 / sqrt(block_sum(sum) / dim + a.eps);
    for (int i = threadIdx.x; i < dim; i += blockDim.x) head[i] = float(head[i] * factor * weight[i]);
    __syncthreads();
  }
  for (int i = threadIdx.x; i < half; i += blockDim.x) {
    const float c = a.cos_table[size_t(position) * half + i], s = a.sin_table[size_t(position) * half + i];
    const int lo = a.style == RopeStyle::kHalves ? i : 2 * i, hi = a.style == RopeStyle::kHalves ? i + half : 2 * i + 1;
    const float x0 = head[lo], x1 = head[hi];
    head[lo] = x0 * c - x1 * s;
    head[hi] = x0 * s + x1 * c;
  }
  __syncthreads();
  if (is_query) {
    for (int i = threadIdx.x; i < dim; i += blockDim.x) x[i] = head[i];
    return;
  }
  const size_t at = cache_at(a.batch, a.cache.block_stride / sizeof(T), a.batch.sequence_of[t], position, g, dim);
  const float* v = a.v + size_t(t) * a.v_stride + size_t(g) * dim;
  for (int i = threadIdx.x; i < dim; i += blockDim.x) {
    static_cast<T*>(a.cache.keys)[at + i] = from_float<T>(head[i]);
    static_cast<T*>(a.cache.values)[at + i] = from_float<T>(v[i]);
  }
}

template <class T>
__device__ inline float dot(const T* key, const float* q, int dim) {
  constexpr int kGroup = 16 / sizeof(T);
  float sum[4] = {};
  if (dim % 8 == 0) {
#pragma unroll 4
    for (int d = 0; d < dim; d += kGroup) {
      const uint4 bits = *reinterpret_cast<const uint4*>(key + d);
      const T* k = reinterpret_cast<const T*>(&bits);
#pragma unroll
      for (int i = 0; i < kGroup; ++i) sum[i % 4] = fmaf(to_float(k[i]), q[d + i], sum[i % 4]);
    }
  } else {
    for (int d = 0; d < dim; ++d) sum[d % 2] = fmaf(to_float(key[d]), q[d], sum[d % 2]);
  }
  return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

// parts: elements of a head a lane holds, at most.
template <class T, int parts>
__global__ void __launch_bounds__(kWarps * 32) attention_kernel(const __grid_constant__ AttentionArgs a) {
  __shared__ float q[kMaxHeadDim], acc_of[kWarps][parts * 32], max_of[kWarps], sum_of[kWarps];
  const int t = blockIdx.x / a.q_heads, h = blockIdx.x % a.q_heads, g = h / (a.q_heads / a.kv_heads), dim = a.head_dim;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int position = a.batch.positions[t], s = a.batch.sequence_of[t];
  const int first = a.window > 0 ? max(0, position - a.window + 1) : 0;
  const size_t block_elements = a.cache.block_stride / sizeof(T);
  const T* keys = static_cast<const T*>(a.cache.keys);
  const T* values = static_cast<const T*>(a.cache.values);
  for (int i = threadIdx.x; i < dim; i += blockDim.x) q[i] = a.q[size_t(t) * a.q_stride + size_t(h) * dim + i];
  __syncthreads();
  float highest = -INFINITY, total = 0, acc[parts] = {};
  const int last_tile = position / 32;
  for (int tile = first / 32 + (warp - first / 32 % kWarps + kWarps) % kWarps; tile <= last_tile; tile += kWarps) {
    const int j = tile * 32 + lane;
    const bool seen = j >= first && j <= position;
    const size_t at = seen ? cache_at(a.batch, block_elements, s, j, g, dim) : 0;
    float score = -INFINITY;
    if (seen) {
      score = dot(keys + at, q, dim) * a.scale;
      if (a.softcap > 0) score = a.softcap * tanhf(score / a.softcap);
    }
    float top = score;
    for (int step = 16; step; step /= 2) top = fmaxf(top, __shfl_xor_sync(0xFFFFFFFFu, top, step));
    top = fmaxf(top, highest);
    const float shrink = expf(highest - top), weight = seen ? expf(score - top) : 0.0f;
    highest = top;
    total = total * shrink + warp_sum(weight);
    for (int i = 0; i < parts; ++i) acc[i] *= shrink;
    const int begin = max(first, tile * 32), end = min(position, tile * 32 + 31);
#pragma unroll 8
    for (int key = begin; key <= end; ++key) {
      const float w = __shfl_sync(0xFFFFFFFFu, weight, key % 32);
      const T* value = values + __shfl_sync(0xFFFFFFFFu, static_cast<unsigned long long>(at), key % 32);
#pragma unroll
      for (int i = 0; i < parts; ++i) {
        const int d = lane + 32 * i;
        if (d < dim) acc[i] = fmaf(w, to_float(value[d]), acc[i]);
      }
    }
  }
  if (lane == 0) max_of[warp] = highest, sum_of[warp] = total;
  for (int i = 0; i < parts; ++i) acc_of[warp][lane + 32 * i] = acc[i];
  __syncthreads();
  // Warps that saw nothing have a maximum of -infinity and a sum of 0: they weigh nothing.
  float top = -INFINITY;
  for (int w = 0; w < kWarps; ++w) top = fmaxf(top, max_of[w]);
  float sum = 0;
  for (int w = 0; w < kWarps; ++w)
    if (sum_of[w] != 0) sum += sum_of[w] * expf(max_of[w] - top);
  for (int d = threadIdx.x; d < dim; d += blockDim.x) {
    float v = 0;
    for (int w = 0; w < kWarps; ++w)
      if (sum_of[w] != 0) v += acc_of[w][d] * expf(max_of[w] - top);
    a.out[size_t(t) * a.out_stride + size_t(h) * dim + d] = v / sum;
  }
}

template <class T>
void launch_attention(const CudaContext* c, const AttentionArgs& a) {
  const int blocks = a.batch.num_tokens * a.q_heads;
  if (a.head_dim <= 64) {
    attention_kernel<T, 2><<<blocks, kWarps * 32, 0, c->stream>>>(a);
  } else if (a.head_dim <= 128) {
    attention_kernel<T, 4><<<blocks, kWarps * 32, 0, c->stream>>>(a);
  } else {
    attention_kernel<T, kMaxHeadDim / 32><<<blocks, kWarps * 32, 0, c->stream>>>(a);
  }
}

}  // namespace

void rope_append(Context* context, const RopeAppendArgs& a) noexcept {
  CudaContext* c = of(context);
  if (a.batch.num_tokens <= 0 || !begin(c)) return;
  const dim3 grid(a.batch.num_tokens, a.q_heads + a.kv_heads);
  switch (a.cache.dtype) {
    case DType::kF32: rope_kernel<float><<<grid, 64, 0, c->stream>>>(a); break;
    case DType::kF16: rope_kernel<__half><<<grid, 64, 0, c->stream>>>(a); break;
    case DType::kBF16: rope_kernel<__nv_bfloat16><<<grid, 64, 0, c->stream>>>(a); break;
  }
  note(c, cudaGetLastError());
}

void attend_exactly(CudaContext* c, const AttentionArgs& a) noexcept {
  switch (a.cache.dtype) {
    case DType::kF32: launch_attention<float>(c, a); break;
    case DType::kF16: launch_attention<__half>(c, a); break;
    case DType::kBF16: launch_attention<__nv_bfloat16>(c, a); break;
  }
}

void attention(Context* context, const AttentionArgs& a) noexcept {
  CudaContext* c = of(context);
  if (a.batch.num_tokens <= 0 || !begin(c)) return;
  if (c->deterministic || !tensor_cores_take(a)) {
    attend_exactly(c, a);
  } else {
    const int group = a.q_heads / a.kv_heads, decodes = a.batch.num_sequences;
    // One sequence is of one kind; of several, only the device knows which are of which.
    const bool one = decodes == 1, few = a.batch.num_tokens * group <= std::max(kFewRows, group);
    if (!one || few) attend_few(c, a);
    if (a.batch.num_tokens > decodes && (!one || !few)) attend_many(c, a);
  }
  note(c, cudaGetLastError());
}

void copy_block(Context* context, const CopyBlockArgs& a) noexcept {
  CudaContext* c = of(context);
  if (!begin(c)) return;
  const size_t n = a.cache.block_stride;
  for (void* base : {a.cache.keys, a.cache.values}) {
    char* bytes = static_cast<char*>(base);
    note(c, cudaMemcpyAsync(bytes + size_t(a.to) * n, bytes + size_t(a.from) * n, n, cudaMemcpyDeviceToDevice, c->stream));
  }
}

}  // namespace sluice::kernels::cuda
