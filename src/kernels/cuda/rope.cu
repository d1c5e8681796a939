// Rotation of queries and keys, and the cache: keys and values go there, blocks are copied there.
#include "kernels/cuda/cache.cuh"
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/half_types.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/prologue.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/rope.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kWarps = 8;

// A warp's head in shared memory, mixed.
__device__ inline void mix_head(float* head, int dim) {
  const int block = mixed_block(dim);
  for (int half = 1; half < block; half *= 2) {
    for (int i = threadIdx.x % 32; i < dim / 2; i += 32) {
      const int low = i / half * 2 * half + i % half;
      const float x = head[low], y = head[low + half];
      head[low] = x + y, head[low + half] = x - y;
    }
    __syncwarp();
  }
  for (int i = threadIdx.x % 32; i < dim; i += 32) head[i] *= mix_factor(block);
}
// To the cache; each lane the elements that it wrote.
template <class T>
__device__ inline void store_row(const float* head, int dim, void* cache, RowPlace at) {
  auto* to = static_cast<uint8_t*>(cache) + at.row;
  if constexpr (kIsCode<T>) {
    uint32_t largest = 0;
    for (int i = threadIdx.x % 32; i < dim; i += 32) largest = max(largest, magnitude(head[i]));
    const RowScale scale = row_scale<T>(__reduce_max_sync(0xFFFFFFFFu, largest));
    for (int i = threadIdx.x % 32; i < dim; i += 32) to[i] = code_of<T>(head[i] * scale.factor);
    if (threadIdx.x % 32 == 0) *reinterpret_cast<uint16_t*>(static_cast<uint8_t*>(cache) + at.scale) = scale.bits;
  } else {
    for (int i = threadIdx.x % 32; i < dim; i += 32) reinterpret_cast<T*>(to)[i] = from_float<T>(head[i]);
  }
}

// A warp a token's head: query heads first, then KV heads, which take their values along. Any shape and type.
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
  const Array& x = is_query ? a.q : a.k;
  const size_t from = is_query ? size_t(t) * a.q_stride + size_t(h) * dim : size_t(t) * a.k_stride + size_t(g) * dim;
  const float* weight = is_query ? a.q_norm : a.k_norm;
  for (int i = lane; i < dim; i += 32) head[i] = element_of(x, from + i);
  if (weight) {
    double sum = 0;
    for (int i = lane; i < dim; i += 32) sum += double(head[i]) * head[i];
    const double factor = 1.0 / sqrt(warp_sum(sum) / dim + a.eps);
    for (int i = lane; i < dim; i += 32) head[i] = float(head[i] * factor * weight[i]);
  }
  if (kIsCode<T> && !is_query && a.key_offset) {
    for (int i = lane; i < dim; i += 32) head[i] -= a.key_offset[size_t(g) * dim + i];
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
    for (int i = lane; i < dim; i += 32) store_element(x, from + i, head[i]);
    return;
  }
  const size_t values = size_t(t) * a.v_stride + size_t(g) * dim;
  const RowPlace key_at = cache_at<T>(a.batch, a.cache.key_stride, a.batch.sequence_of[t], position, g, a.kv_heads, dim);
  const RowPlace value_at = cache_at<T>(a.batch, a.cache.value_stride, a.batch.sequence_of[t], position, g, a.kv_heads, dim);
  if constexpr (kIsMixed<T>) mix_head(head, dim);
  store_row<T>(head, dim, a.cache.keys, key_at);
  for (int i = lane; i < dim; i += 32) head[i] = element_of(a.v, values + i);  // each lane its own
  store_row<T>(head, dim, a.cache.values, value_at);
}

// The same by whole vectors (rope.cuh).
constexpr int kThreads = 256;

template <class X, class T>
__global__ void __launch_bounds__(kThreads) rope_vectors_kernel(const __grid_constant__ RopeAppendArgs a) {
  let_next_begin();
  const int pieces = a.head_dim / 16, heads = a.q_heads + 2 * a.kv_heads;
  const int all = a.batch.num_tokens * heads * pieces, index = int(blockIdx.x) * kThreads + int(threadIdx.x), mine = min(index, all - 1);
  RopePiece<T> piece(a, mine / pieces / heads, mine / pieces % heads, mine % pieces);
  wait_for_previous();
  const auto from = piece.input(a);
  const X* x = static_cast<const X*>(from.data) + from.from;
  float v[2][8];
  load8(x + piece.low, v[0]);
  load8(x + piece.high, v[1]);
  piece.finish(a, v, index < all, [&] {
    X* to = static_cast<X*>(a.q.data) + size_t(piece.token) * a.q_stride + size_t(piece.head) * a.head_dim;
    store8(to + piece.low, v[0]);
    store8(to + piece.high, v[1]);
  });
}

}  // namespace

bool rope_vectors_take(const RopeAppendArgs& a) noexcept {
  const int pieces = a.head_dim / 16;
  const bool codes = !is_float(a.cache.type.keys), norms = a.q_norm || a.k_norm || codes;  // what threads of a head do together
  if (codes && a.rope_dims != a.head_dim) return false;
  const auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 16 == 0; };
  return a.head_dim % 16 == 0 && a.rope_dims % 16 == 0 && (!norms || (pieces & (pieces - 1)) == 0) && a.q_stride % 8 == 0 && a.k_stride % 8 == 0 &&
         a.v_stride % 8 == 0 && aligned(a.q.data) && aligned(a.k.data) && aligned(a.v.data) && aligned(a.cos_table) && aligned(a.sin_table);
}

namespace {

template <class T>
void launch_rope(CudaContext* c, const RopeAppendArgs& a) {
  if (!c->deterministic && rope_vectors_take(a)) {
    const int threads = a.batch.num_tokens * (a.q_heads + 2 * a.kv_heads) * (a.head_dim / 16);
    const dim3 grid(unsigned((threads + kThreads - 1) / kThreads));
    const auto kernel = a.q.type == DType::kF32 ? rope_vectors_kernel<float, T> : a.q.type == DType::kF16 ? rope_vectors_kernel<__half, T>
                                                                                                          : rope_vectors_kernel<__nv_bfloat16, T>;
    return note(c, launch_early({c, a.batch.num_tokens}, grid, kThreads, 0, kernel, a));
  }
  const dim3 grid(unsigned(a.batch.num_tokens), unsigned((a.q_heads + a.kv_heads + kWarps - 1) / kWarps));
  note(c, launch_early({c, a.batch.num_tokens}, grid, kWarps * 32, 0, rope_kernel<T>, a));
}

}  // namespace

void rope_append(Context* context, const RopeAppendArgs& a) noexcept {
  CudaContext* c = of(context);
  if (a.batch.num_tokens <= 0 || !begin(c)) return;
  with_element(a.cache.type.keys, [&]<class T>() { launch_rope<T>(c, a); });
}

void copy_block(Context* context, const CopyBlockArgs& a) noexcept {
  CudaContext* c = of(context);
  if (!begin(c)) return;
  const auto copy = [&](void* to, const void* from, size_t n) {
    note(c, cudaMemcpyAsync(static_cast<char*>(to) + size_t(a.to) * n, static_cast<const char*>(from) + size_t(a.from) * n, n, cudaMemcpyDefault, c->stream));
  };
  copy(a.to_cache.keys, a.from_cache.keys, a.from_cache.key_stride);
  copy(a.to_cache.values, a.from_cache.values, a.from_cache.value_stride);
}

}  // namespace sluice::kernels::cuda
