// Attention: which way, and the exact one. There, a block of eight warps for each query head of each token; warp w takes the tiles of 32 positions with index = w mod 8, so that what a token's result is folded from
// depends on its position alone. In a tile a lane scores one key, then the lanes share the value's elements.
#include <algorithm>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/cache.cuh"
#include "kernels/cuda/half_types.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/rope.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kTogetherTokens = 8;  // up to here attention appends, too: a kernel less counts, and registers do not

template <class T>
__device__ inline float dot(const T* key, const float* q, int dim) {
  constexpr int kGroup = 16 / sizeof(T);
  float sum[4] = {};
  if (dim % (kIsCode<T> ? 16 : 8) == 0) {
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

// What a key has before rotation and the cache has not (RopeAppendArgs::key_offset), turned to its position, times the query.
__device__ inline float offset_score(const AttentionArgs& a, const float* q, int g, int position) {
  const int half = a.rope_dims / 2;
  const float* offset = a.key_offset + size_t(g) * a.head_dim;
  const float *cosines = a.cos_table + size_t(position) * half, *sines = a.sin_table + size_t(position) * half;
  float sum[2] = {};
  for (int i = 0; i < half; ++i) {
    const int low = a.style == RopeStyle::kHalves ? i : 2 * i, high = a.style == RopeStyle::kHalves ? i + half : 2 * i + 1;
    const float c = cosines[i], s = sines[i], x0 = offset[low], x1 = offset[high];
    sum[0] = fmaf(q[low], x0 * c - x1 * s, sum[0]), sum[1] = fmaf(q[high], x0 * s + x1 * c, sum[1]);
  }
  for (int i = a.rope_dims; i < a.head_dim; ++i) sum[i % 2] = fmaf(q[i], offset[i], sum[i % 2]);
  return sum[0] + sum[1];
}

// parts: elements of a head a lane holds, at most.
template <class T, int parts>
__global__ void __launch_bounds__(kWarps * 32) attention_kernel(const __grid_constant__ AttentionArgs a) {
  __shared__ float q[kMaxHeadDim], acc_of[kWarps][parts * 32], max_of[kWarps], sum_of[kWarps];
  const int t = blockIdx.x / a.q_heads, h = blockIdx.x % a.q_heads, g = h / (a.q_heads / a.kv_heads), dim = a.head_dim;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int position = a.batch.positions[t], s = a.batch.sequence_of[t];
  const int first = a.window > 0 ? max(0, position - a.window + 1) : 0;
  const auto* keys = static_cast<const uint8_t*>(a.cache.keys);
  const auto* values = static_cast<const uint8_t*>(a.cache.values);
  const bool has_offset = kIsCode<T> && a.key_offset;
  for (int i = threadIdx.x; i < dim; i += blockDim.x) q[i] = element_of(a.q, size_t(t) * a.q_stride + size_t(h) * dim + i);
  __syncthreads();
  const float* query = q;  // as keys are
  if constexpr (kIsMixed<T>) {
    __shared__ float mixed[kMaxHeadDim];
    const int block = mixed_block(dim);
    for (int i = threadIdx.x; i < dim; i += blockDim.x) mixed[i] = q[i];
    for (int half = 1; half < block; half *= 2) {
      __syncthreads();
      for (int i = threadIdx.x; i < dim / 2; i += blockDim.x) {
        const int low = i / half * 2 * half + i % half;
        const float x = mixed[low], y = mixed[low + half];
        mixed[low] = (x + y), mixed[low + half] = (x - y);
      }
    }
    __syncthreads();
    for (int i = threadIdx.x; i < dim; i += blockDim.x) mixed[i] *= mix_factor(block);
    __syncthreads();
    query = mixed;
  }
  float highest = -INFINITY, total = 0, acc[parts] = {};
  const int last_tile = position / 32;
  for (int tile = first / 32 + (warp - first / 32 % kWarps + kWarps) % kWarps; tile <= last_tile; tile += kWarps) {
    const int j = tile * 32 + lane;
    const bool seen = j >= first && j <= position;
    RowPlace key_at{}, value_at{};
    float score = -INFINITY, value_scale = 1;
    if (seen) {
      key_at = cache_at<T>(a.batch, a.cache.key_stride, s, j, g, a.kv_heads, dim);
      value_at = cache_at<T>(a.batch, a.cache.value_stride, s, j, g, a.kv_heads, dim);
      score = dot(reinterpret_cast<const T*>(keys + key_at.row), query, dim);
      if constexpr (kIsCode<T>) {
        score *= cache_scale(keys, key_at.scale);
        value_scale = cache_scale(values, value_at.scale);
        if (has_offset) score += offset_score(a, q, g, j);
      }
      score *= a.scale;
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
      const float w = __shfl_sync(0xFFFFFFFFu, weight * value_scale, key % 32);
      const T* value = reinterpret_cast<const T*>(values + __shfl_sync(0xFFFFFFFFu, static_cast<unsigned long long>(value_at.row), key % 32));
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
    store_element(a.out, size_t(t) * a.out_stride + size_t(h) * dim + d, v / sum);
  }
}

template <class T>
void launch_attention(const CudaContext* c, const AttentionArgs& a) {
  const int blocks = a.batch.num_tokens * a.q_heads;
  if (a.head_dim <= 64) {
    launch(c, blocks, kWarps * 32, attention_kernel<T, 2>, a);
  } else if (a.head_dim <= 128) {
    launch(c, blocks, kWarps * 32, attention_kernel<T, 4>, a);
  } else {
    launch(c, blocks, kWarps * 32, attention_kernel<T, kMaxHeadDim / 32>, a);
  }
}

}  // namespace

void attend_exactly(CudaContext* c, const AttentionArgs& a) noexcept {
  with_element(a.cache.type.keys, [&]<class T>() { launch_attention<T>(c, a); });
}

// Where the host knows which sequences those are, a kernel each: blocks of all others would come by in vain.
static void attend_many_by_few(CudaContext* c, const AttentionArgs& a, const Prompts& prompts) {
  const Listed& l = prompts.listed;
  if (l.count == 0) return attend_few(c, a, nullptr, prompts.most_rows, {true});
  for (int i = 0; i < l.count; ++i) {
    const int s = l.sequence[i], tokens = a.batch.host_query_begin[s + 1] - a.batch.host_query_begin[s];
    attend_few(c, a, nullptr, tokens * (a.q_heads / a.kv_heads), {true, s});
  }
}

void attention(Context* context, const AttentionArgs& a) noexcept {
  CudaContext* c = of(context);
  if (a.batch.num_tokens <= 0 || !begin(c)) return;
  const bool has_offset = a.key_offset && !is_float(a.cache.type.keys);
  const Prompts prompts = prompts_of(a);
  const bool closed = c->can.hopper && prompts.tiles > 0 && !is_float(a.cache.type.keys) && !can_open(c, a, prompts);
  const bool exactly = c->deterministic || has_offset || !tensor_cores_take(a) || closed;
  const bool by_few = !exactly && prompts.few_rows > 0, by_many = !exactly && prompts.tiles > 0;
  const bool together = a.append && by_few && !by_many && a.batch.num_tokens <= kTogetherTokens && rope_vectors_take(*a.append);
  if (a.append && !together) rope_append(c, *a.append);
  if (exactly) attend_exactly(c, a);
  if (by_few) attend_few(c, a, together ? a.append : nullptr, prompts.few_rows);
  if (by_many && c->can.hopper) attend_many(c, a, prompts);
  else if (by_many) attend_many_by_few(c, a, prompts);
  note(c, cudaGetLastError());
}

}  // namespace sluice::kernels::cuda
