// A thread's part of rotation and of the append to the cache: eight pairs of a head of queries or keys, or sixteen values. Threads of a
// head are neighbours in a warp. Used by the kernel that does nothing else and by attention of few tokens, with the same bits.
#pragma once
#include "kernels/cuda/cache.cuh"
#include "kernels/cuda/prologue.cuh"

namespace sluice::kernels::cuda {

// Whether heads are such that whole vectors do: else a warp a head does it, in rope.cu alone.
bool rope_vectors_take(const RopeAppendArgs& a) noexcept;

// A head of a power of two dimensions, 16 a thread: neighbours, or (apart) eight of each half. The steps in the order of the reference.
__device__ inline void mix_across(float (&x)[16], bool apart, int pieces) {
  const auto step = [&](int half) {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      if (i & half) continue;
      const float low = x[i], high = x[i + half];
      x[i] = low + high, x[i + half] = low - high;
    }
  };
  step(1), step(2), step(4);
  if (!apart) step(8);
  for (int lanes = 1; lanes < pieces; lanes *= 2) {
#pragma unroll
    for (float& v : x) v = mix_lanes(v, lanes);
  }
  if (apart) step(8);
}

// T: the cache's element.
template <class T>
struct RopePiece {
  int token, head, piece, group;  // of all heads, queries first, then keys, then values; KV head
  bool is_query, is_value, turns, apart;
  int low, high;                  // where its two vectors of eight are in the head
  float c[8], s[8];
  RowPlace at{};

  // Reads the step's plan and the tables: need not wait for anything.
  __device__ RopePiece(const RopeAppendArgs& a, int token, int head, int piece) : token(token), head(head), piece(piece) {
    const int half = a.rope_dims / 2, position = a.batch.positions[token];
    group = (head - a.q_heads) % a.kv_heads;
    is_query = head < a.q_heads, is_value = head >= a.q_heads + a.kv_heads, turns = !is_value && 8 * piece < half;
    apart = turns && a.style == RopeStyle::kHalves;
    low = apart ? 8 * piece : 16 * piece, high = apart ? low + half : low + 8;
    if (turns) {
      load8(a.cos_table + size_t(position) * half + 8 * piece, c);
      load8(a.sin_table + size_t(position) * half + 8 * piece, s);
    }
    if (!is_query)
      at = cache_at<T>(a.batch, is_value ? a.cache.value_stride : a.cache.key_stride, a.batch.sequence_of[token], position, group, a.kv_heads, a.head_dim);
  }
  // Its head's row: an array's element from which on.
  struct Head {
    const void* data;
    DType type;
    size_t from;
  };
  __device__ Head input(const RopeAppendArgs& a) const {
    const size_t in_row = size_t(is_query ? head : group) * a.head_dim;
    if (is_query) return {a.q.data, a.q.type, size_t(token) * a.q_stride + in_row};
    if (is_value) return {a.v.data, a.v.type, size_t(token) * a.v_stride + in_row};
    return {a.k.data, a.k.type, size_t(token) * a.k_stride + in_row};
  }
  // x: its two vectors, which become rotated ones. Keys and values go to the cache, and store() is called for queries; for none where the
  // thread is not `there`, though all threads of a warp must come here where a head's threads have something to do together.
  template <class Store>
  __device__ void finish(const RopeAppendArgs& a, float (&x)[2][8], bool there, Store store) const {
    const int dim = a.head_dim, pieces = dim / 16;
    const float* weight = is_value ? nullptr : is_query ? a.q_norm : a.k_norm;
    if (a.q_norm || a.k_norm) {
      float sum = 0;
#pragma unroll
      for (int i = 0; i < 8; ++i) sum = fmaf(x[0][i], x[0][i], fmaf(x[1][i], x[1][i], sum));
      for (int step = 1; step < pieces; step *= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
      const float factor = rsqrtf(sum / float(dim) + a.eps);
#pragma unroll
      for (int i = 0; i < 8 && weight; ++i) x[0][i] *= factor * weight[low + i], x[1][i] *= factor * weight[high + i];
    }
    if (kIsCode<T> && a.key_offset && !is_query && !is_value) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        x[0][i] -= a.key_offset[size_t(group) * dim + low + i];
        x[1][i] -= a.key_offset[size_t(group) * dim + high + i];
      }
    }
    rotate(x);
    RowScale scale{};
    if constexpr (kIsCode<T>) scale = scale_of_row(x, pieces, dim);
    if (!there) return;
    if (is_query) return store();
    void* const cache = is_value ? a.cache.values : a.cache.keys;
    uint8_t* const to = static_cast<uint8_t*>(cache) + at.row;
    if constexpr (kIsCode<T>) {
      *reinterpret_cast<uint2*>(to + low) = eight_codes<T>(x[0], scale.factor);
      *reinterpret_cast<uint2*>(to + high) = eight_codes<T>(x[1], scale.factor);
      if (piece == 0) *reinterpret_cast<uint16_t*>(static_cast<uint8_t*>(cache) + at.scale) = scale.bits;
    } else {
      store8(reinterpret_cast<T*>(to) + low, x[0]);
      store8(reinterpret_cast<T*>(to) + high, x[1]);
    }
  }

 private:
  __device__ void rotate(float (&x)[2][8]) const {
    if (apart) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const float x0 = x[0][i], x1 = x[1][i];
        x[0][i] = x0 * c[i] - x1 * s[i], x[1][i] = x0 * s[i] + x1 * c[i];
      }
    } else if (turns) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        float* pair = x[i / 4] + i % 4 * 2;
        const float x0 = pair[0], x1 = pair[1];
        pair[0] = x0 * c[i] - x1 * s[i], pair[1] = x0 * s[i] + x1 * c[i];
      }
    }
  }
  // Of codes: mixes keys of a mixed type, and finds the row's scale. All threads of a row.
  __device__ RowScale scale_of_row(float (&x)[2][8], int pieces, int dim) const {
    if constexpr (kIsMixed<T>) {
      float held[16];
#pragma unroll
      for (int i = 0; i < 16; ++i) held[i] = x[i / 8][i % 8];
      mix_across(held, apart, pieces);
      if (!is_query && !is_value) {
#pragma unroll
        for (int i = 0; i < 16; ++i) x[i / 8][i % 8] = held[i] * mix_factor(dim);
      }
    }
    uint32_t largest = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) largest = max(largest, max(magnitude(x[0][i]), magnitude(x[1][i])));
    for (int step = 1; step < pieces; step *= 2) largest = max(largest, __shfl_xor_sync(0xFFFFFFFFu, largest, step));
    return row_scale<T>(largest);
  }
};

}  // namespace sluice::kernels::cuda
