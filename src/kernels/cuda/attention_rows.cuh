// The rows of queries that a block of attention_few.cu holds, and what its warps do with a tile of 16 positions.
#pragma once
#include <type_traits>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/cache.cuh"
#include "kernels/cuda/pipeline.cuh"
#include "kernels/cuda/prologue.cuh"

namespace sluice::kernels::cuda {

constexpr float kLog2E = 1.4426950408889634f;

// What one block does.
struct Part {
  int sequence, head, row, rows, tokens, token, end;  // KV head, first row, rows of the tile, the sequence's tokens, its first, its length
  int from, to, splits;                               // positions of this split, and how many splits there are
};

__device__ inline uint32_t word(const uint4& v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

// T: the cache's element. A lane's elements of a key, and so of a query, are those of its 16-byte loads: 8 of 32, or of codes 16 of 64.
template <class T, int dim, int column_tiles>
struct Rows {
  using H = HalfOf<T>;
  static constexpr int kHalves = (dim + 63) / 64, kRows = 8 * column_tiles;
  static constexpr int kChunks = kIsCode<T> ? 2 * kHalves : (dim + 31) / 32;
  uint4 q[column_tiles][kChunks];          // row lane / 4, elements `element(c)` on
  float out[column_tiles][kHalves][4][4];  // rows 2 (lane % 4) and one more, elements 64 h + 8 (lane / 4) on
  float highest[column_tiles][2], total[column_tiles][2];
  int last[column_tiles][2], first[column_tiles][2];  // positions that a row sees

  __device__ static int element(int c) {
    const int t = threadIdx.x % 4;
    return kIsCode<T> ? c / 2 * 64 + t * 16 + c % 2 * 8 : 32 * c + t * 8;
  }
  // Eight elements of a query: from a.q, or of row r of those that were rotated here.
  __device__ static void load(const AttentionArgs& a, const float* rotated, int r, size_t from, int e, float v[8]) {
    if (!rotated) return load_floats(a.q, from + e, v);
    const auto* at = reinterpret_cast<const float4*>(rotated + r * (dim + 4) + e);
    const float4 x = at[0], y = at[1];
    v[0] = x.x, v[1] = x.y, v[2] = x.z, v[3] = x.w, v[4] = y.x, v[5] = y.y, v[6] = y.z, v[7] = y.w;
  }
  __device__ static uint4 halves(const float v[8]) {
    return make_uint4(pair_of<H>(v[0], v[1]), pair_of<H>(v[2], v[3]), pair_of<H>(v[4], v[5]), pair_of<H>(v[6], v[7]));
  }
  // A query of row j, mixed as keys are: steps within a load, between a row's lanes, between loads.
  __device__ void mix(const AttentionArgs& a, const float* rotated, int j, size_t from, bool there) {
    constexpr int kBlock = mixed_block(dim);
    float x[kHalves][16];
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      if (there && element(c) < dim) {
        float v[8];
        load(a, rotated, 8 * j + int(threadIdx.x) % 32 / 4, from, element(c), v);
#pragma unroll
        for (int i = 0; i < 8; ++i) x[c / 2][c % 2 * 8 + i] = v[i];
      } else {
#pragma unroll
        for (int i = 0; i < 8; ++i) x[c / 2][c % 2 * 8 + i] = 0;
      }
    }
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      mix_held(x[h], kBlock);
#pragma unroll
      for (int step = 1; step < 4 && 16 * step < kBlock; step *= 2)
#pragma unroll
        for (float& v : x[h]) v = mix_lanes(v, step);
    }
#pragma unroll
    for (int step = 1; step < kHalves && 64 * step < kBlock; step *= 2) {
#pragma unroll
      for (int h = 0; h < kHalves; ++h) {
        if (h & step) continue;
#pragma unroll
        for (int i = 0; i < 16; ++i) {
          const float low = x[h][i], high = x[h + step][i];
          x[h][i] = low + high, x[h + step][i] = low - high;
        }
      }
    }
    const float factor = mix_factor(kBlock);
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      float v[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) v[i] = x[c / 2][c % 2 * 8 + i] * factor;
      q[j][c] = halves(v);
    }
  }
  // rotated: the part's queries in shared memory, [rows][dim + 4]; null: they are a.q's.
  __device__ void begin(const AttentionArgs& a, const Part& p, const float* rotated) {
    const int lane = threadIdx.x % 32, group = a.q_heads / a.kv_heads;
#pragma unroll
    for (int j = 0; j < column_tiles; ++j) {
      const int r = p.row + 8 * j + lane / 4;
      const bool there = r < p.row + p.rows;
      const size_t from = size_t(p.token + (there ? r / group : 0)) * a.q_stride + size_t(p.head * group + (there ? r % group : 0)) * dim;
      if constexpr (kIsMixed<T>) {
        mix(a, rotated, j, from, there);
      } else {
#pragma unroll
        for (int c = 0; c < kChunks; ++c) {
          q[j][c] = make_uint4(0, 0, 0, 0);
          if (!there || element(c) >= dim) continue;
          float v[8];
          if (rotated) load(a, rotated, 8 * j + lane / 4, 0, element(c), v), q[j][c] = halves(v);
          else q[j][c] = eight_of<H>(a.q, from + element(c));
        }
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = p.row + 8 * j + lane % 4 * 2 + i;
        highest[j][i] = -INFINITY, total[j][i] = 0;
        last[j][i] = row < p.row + p.rows ? p.end - p.tokens + row / group : -1;
        first[j][i] = a.window > 0 ? last[j][i] - a.window + 1 : 0;
      }
#pragma unroll
      for (int h = 0; h < kHalves; ++h)
#pragma unroll
        for (int m = 0; m < 4; ++m)
#pragma unroll
          for (int i = 0; i < 4; ++i) out[j][h][m][i] = 0;
    }
  }
};

// A lane's keys of a tile: positions lane / 4 and 8 more; its values: four positions, elements 8 (lane / 4) on of each half.
template <class T, int dim>
struct Keys {
  static constexpr int kWidth = 16 / sizeof(T), kLoads = (dim + 4 * kWidth - 1) / (4 * kWidth);
  uint4 upper[kLoads], lower[kLoads];
  float scale[2];
  __device__ void load(const void* cache, RowPlace at) {
    const int lane = threadIdx.x % 32;
    const T* from = reinterpret_cast<const T*>(static_cast<const uint8_t*>(cache) + at.row) + lane / 4 * dim;
#pragma unroll
    for (int c = 0; c < kLoads; ++c) {
      const int d = 4 * kWidth * c + lane % 4 * kWidth;
      upper[c] = d < dim ? load_once16(from + d) : make_uint4(0, 0, 0, 0);
      lower[c] = d < dim ? load_once16(from + 8 * dim + d) : make_uint4(0, 0, 0, 0);
    }
    if constexpr (kIsCode<T>) {
#pragma unroll
      for (int i = 0; i < 2; ++i) scale[i] = cache_scale(cache, at.scale + 2 * (lane / 4 + 8 * i));
    }
  }
};
// Is an element among a lane's eight an infinity or NaN?
template <class T, class Eight>
__device__ inline bool holds_no_number(const Eight& eight) {
  bool found = false;
  const auto* v = reinterpret_cast<const T*>(&eight);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    if constexpr (std::is_same_v<T, E4m3>) found |= (v[i].bits & 0x7F) == 0x7F;
    else if constexpr (!kIsCode<T>) found |= !isfinite(to_float(v[i]));
  }
  return found;
}
template <class T, int dim>
struct Values {
  static constexpr int kHalves = (dim + 63) / 64;
  using Eight = std::conditional_t<kIsCode<T>, uint2, uint4>;
  Eight v[kHalves][4];
  float scale[2];
  // count: positions of the tile that hold values; what the others hold must not matter.
  __device__ void load(const void* cache, RowPlace at, int count) {
    const int lane = threadIdx.x % 32;
    const T* tile = reinterpret_cast<const T*>(static_cast<const uint8_t*>(cache) + at.row);
#pragma unroll
    for (int h = 0; h < kHalves; ++h) {
      const int d = 64 * h + lane / 4 * 8;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int slot = lane % 4 * 2 + i % 2 + i / 2 * 8;
        v[h][i] = Eight{};
        if (d >= dim || slot >= count) continue;
        if constexpr (kIsCode<T>) v[h][i] = load_once8(tile + slot * dim + d);
        else v[h][i] = load_once16(tile + slot * dim + d);
      }
    }
    if constexpr (kIsCode<T>) {
#pragma unroll
      for (int i = 0; i < 2; ++i) scale[i] = cache_scale(cache, at.scale + 2 * (lane / 4 + 8 * i));
    }
  }
  // Elements 2 m and 2 m + 1 of a half as the products' left factor: two positions a word.
  __device__ void left(int h, int m, uint32_t a[4]) const {
    if constexpr (kIsCode<T>) {
      const auto codes = [&](int i) { return m < 2 ? v[h][i].x : v[h][i].y; };
      const uint32_t order = m % 2 ? 0x7362 : 0x5140;
      four_halves<T>(__byte_perm(codes(0), codes(1), order), a[0], a[1]);
      four_halves<T>(__byte_perm(codes(2), codes(3), order), a[2], a[3]);
    } else {
      const uint32_t w0 = word(v[h][0], m), w1 = word(v[h][1], m), w2 = word(v[h][2], m), w3 = word(v[h][3], m);
      a[0] = __byte_perm(w0, w1, 0x5410), a[1] = __byte_perm(w0, w1, 0x7632), a[2] = __byte_perm(w2, w3, 0x5410), a[3] = __byte_perm(w2, w3, 0x7632);
    }
  }
};

// Scores of n tiles of 16 positions become weights relative to the row's highest so far; the sums before are scaled to match. Of
// codes, weights take their values' scales along (ValueScale).
template <class T, int dim, int column_tiles, int n>
__device__ inline void weigh(Rows<T, dim, column_tiles>& r, float (&s)[n][column_tiles][4], int position, const float (&scales)[n][2], float softcap,
                             const Values<T, dim> (&values)[n]) {
  ValueScale of_value[n][2];
#pragma unroll
  for (int t = 0; t < n && kIsCode<T>; ++t)
#pragma unroll
    for (int k = 0; k < 2; ++k) of_value[t][k] = value_scale(values[t].scale[k]);
#pragma unroll
  for (int j = 0; j < column_tiles; ++j) {
    float top[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int t = 0; t < n; ++t) {
#pragma unroll
        for (int k = 0; k < 2; ++k) {  // this lane's two positions of a tile
          float v = s[t][j][2 * k + i] * scales[t][k];
          if (softcap > 0) v = softcap * kLog2E * tanhf(v / softcap);
          if constexpr (kIsCode<T>) v += of_value[t][k].log2;
          const int at = position + 16 * t + 8 * k;
          v = at <= r.last[j][i] && at >= r.first[j][i] ? v : -INFINITY;
          s[t][j][2 * k + i] = v;
          top[i] = fmaxf(top[i], v);
        }
      }
#pragma unroll
      for (int step = 4; step < 32; step *= 2) top[i] = fmaxf(top[i], __shfl_xor_sync(0xFFFFFFFFu, top[i], step));
    }
    const bool higher = top[0] > r.highest[j][0] || top[1] > r.highest[j][1];
    if (__any_sync(0xFFFFFFFFu, higher)) {
      float shrink[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float next = fmaxf(r.highest[j][i], top[i]);
        shrink[i] = next == -INFINITY ? 1.0f : exp2_fast(r.highest[j][i] - next);
        r.highest[j][i] = next;
        r.total[j][i] *= shrink[i];
      }
#pragma unroll
      for (int h = 0; h < r.kHalves; ++h)
#pragma unroll
        for (int m = 0; m < 4; ++m)
#pragma unroll
          for (int i = 0; i < 4; ++i) r.out[j][h][m][i] *= shrink[i % 2];
    }
#pragma unroll
    for (int t = 0; t < n; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& v = s[t][j][i];
        const bool seen = v != -INFINITY;
        v = seen ? exp2_fast(v - r.highest[j][i % 2]) : 0.0f;
        if constexpr (!kIsCode<T>) r.total[j][i % 2] += v;
        else if (seen) r.total[j][i % 2] = fmaf(v, of_value[t][i / 2].inverse, r.total[j][i % 2]);
      }
    }
  }
}

template <class T, int dim, int column_tiles>
__device__ inline void attend_tile(Rows<T, dim, column_tiles>& r, const Keys<T, dim>& keys, float s[column_tiles][4]) {
  using H = HalfOf<T>;
#pragma unroll
  for (int j = 0; j < column_tiles; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) s[j][i] = 0;
#pragma unroll
  for (int c = 0; c < keys.kLoads; ++c) {
    const uint4 &u = keys.upper[c], &l = keys.lower[c];
    if constexpr (kIsCode<T>) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        uint32_t a[4];
        four_halves<T>(word(u, i), a[0], a[2]);
        four_halves<T>(word(l, i), a[1], a[3]);
#pragma unroll
        for (int j = 0; j < column_tiles; ++j) {
          const uint4& q = r.q[j][2 * c + i / 2];
          mma<H>(s[j], a[0], a[1], a[2], a[3], i % 2 ? q.z : q.x, i % 2 ? q.w : q.y);
        }
      }
    } else {
#pragma unroll
      for (int j = 0; j < column_tiles; ++j) {
        const uint4& q = r.q[j][c];
        mma<H>(s[j], u.x, l.x, u.y, l.y, q.x, q.y);
        mma<H>(s[j], u.z, l.z, u.w, l.w, q.z, q.w);
      }
    }
  }
}

// A weight of 0 hides a value only if that is a number. Where not all rows see a tile of 16 positions, those whose values hold an infinity or NaN
// become zeros, and rows that see one get NaNs (as in attention_bring.cuh). s: weights.
template <class T, int dim, int column_tiles>
__device__ inline void spoil(Rows<T, dim, column_tiles>& r, Values<T, dim>& values, const float s[column_tiles][4], int position) {
  const int lane = threadIdx.x % 32;
  bool hidden = false;
#pragma unroll
  for (int j = 0; j < column_tiles; ++j)
#pragma unroll
    for (int i = 0; i < 2; ++i) hidden |= r.last[j][i] >= 0 && (position + 15 > r.last[j][i] || position < r.first[j][i]);
  if (!__any_sync(0xFFFFFFFFu, hidden)) return;
  const auto slot_of = [&](int i) { return lane % 4 * 2 + i % 2 + i / 2 * 8; };
  uint32_t bad = 0;
#pragma unroll
  for (int h = 0; h < values.kHalves; ++h)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (holds_no_number<T>(values.v[h][i])) bad |= 1u << slot_of(i);
  bad = __reduce_or_sync(0xFFFFFFFFu, bad);
  if (!bad) return;
#pragma unroll
  for (int h = 0; h < values.kHalves; ++h)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (bad >> slot_of(i) & 1) values.v[h][i] = {};
#pragma unroll
  for (int j = 0; j < column_tiles; ++j)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int slot = lane / 4 + i / 2 * 8, at = position + slot;
      if (bad >> slot & 1 && at <= r.last[j][i % 2] && at >= r.first[j][i % 2]) r.total[j][i % 2] = __uint_as_float(0x7FC00000u);
    }
}

template <class T, int dim, int column_tiles>
__device__ inline void add_values(Rows<T, dim, column_tiles>& r, const Values<T, dim>& values, const float s[column_tiles][4]) {
  using H = HalfOf<T>;
  uint32_t w[column_tiles][2];
#pragma unroll
  for (int j = 0; j < column_tiles; ++j) {
    w[j][0] = transposed(pair_in_range<H>(s[j][0], s[j][1]));
    w[j][1] = transposed(pair_in_range<H>(s[j][2], s[j][3]));
  }
#pragma unroll
  for (int h = 0; h < r.kHalves; ++h) {
#pragma unroll
    for (int m = 0; m < 4; ++m) {
      uint32_t a[4];
      values.left(h, m, a);
#pragma unroll
      for (int j = 0; j < column_tiles; ++j) mma<H>(r.out[j][h][m], a[0], a[1], a[2], a[3], w[j][0], w[j][1]);
    }
  }
}

// The warps' rows into shared memory: [warp][rows][dim + 4].
template <class T, int dim, int column_tiles>
__device__ inline void leave_rows(const Rows<T, dim, column_tiles>& r, float* shared) {
  constexpr int kPitch = dim + 4, kRows = 8 * column_tiles;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
  for (int j = 0; j < column_tiles; ++j) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float sum = r.total[j][i];
#pragma unroll
      for (int step = 4; step < 32; step *= 2) sum += __shfl_xor_sync(0xFFFFFFFFu, sum, step);
      float* to = shared + (warp * kRows + 8 * j + lane % 4 * 2 + i) * kPitch;
#pragma unroll
      for (int h = 0; h < r.kHalves; ++h) {
        const int d = 64 * h + lane / 4 * 8;
        if (d >= dim) continue;
#pragma unroll
        for (int m = 0; m < 4; ++m) to[d + 2 * m] = r.out[j][h][m][i], to[d + 2 * m + 1] = r.out[j][h][m][2 + i];
      }
      if (lane / 4 == 0) to[dim] = r.highest[j][i], to[dim + 1] = sum;
    }
  }
}

}  // namespace sluice::kernels::cuda
