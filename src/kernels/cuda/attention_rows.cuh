// The rows of queries that a block of attention_few.cu holds, and what its warps do with a tile of 16 positions.
#pragma once
#include "kernels/cuda/attention.h"
#include "kernels/cuda/half_types.cuh"

namespace sluice::kernels::cuda {

constexpr float kLog2E = 1.4426950408889634f;

// What one block does.
struct Part {
  int sequence, head, row, rows, tokens, token, end;  // KV head, first row, rows of the tile, the sequence's tokens, its first, its length
  int from, to, splits;                               // positions of this split, and how many splits there are
};

__device__ inline uint4 load16(const void* p) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}
__device__ inline uint32_t transposed(uint32_t v) {
  uint32_t y;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(v));
  return y;
}
__device__ inline float exp2_fast(float v) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(v));
  return y;
}
__device__ inline uint32_t word(const uint4& v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }

template <class H, int dim, int column_tiles>
struct Rows {
  static constexpr int kChunks = (dim + 31) / 32, kHalves = (dim + 63) / 64, kRows = 8 * column_tiles;
  uint4 q[column_tiles][kChunks];          // row lane / 4, elements 32 c + 8 (lane % 4) on
  float out[column_tiles][kHalves][4][4];  // rows 2 (lane % 4) and one more, elements 64 h + 8 (lane / 4) on
  float highest[column_tiles][2], total[column_tiles][2];
  int last[column_tiles][2], first[column_tiles][2];  // positions that a row sees

  __device__ void begin(const AttentionArgs& a, const Part& p) {
    const int lane = threadIdx.x % 32, group = a.q_heads / a.kv_heads;
#pragma unroll
    for (int j = 0; j < column_tiles; ++j) {
      const int r = p.row + 8 * j + lane / 4;
      const bool there = r < p.row + p.rows;
      const size_t from = size_t(p.token + (there ? r / group : 0)) * a.q_stride + size_t(p.head * group + (there ? r % group : 0)) * dim;
#pragma unroll
      for (int c = 0; c < kChunks; ++c) {
        const int d = 32 * c + lane % 4 * 8;
        q[j][c] = there && d < dim ? eight_of<H>(a.q, from + d) : make_uint4(0, 0, 0, 0);
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
template <int dim>
struct Keys {
  uint4 upper[(dim + 31) / 32], lower[(dim + 31) / 32];
  template <class H>
  __device__ void load(const H* tile) {
    const int lane = threadIdx.x % 32;
    const H* from = tile + lane / 4 * dim;
#pragma unroll
    for (int c = 0; c < (dim + 31) / 32; ++c) {
      const int d = 32 * c + lane % 4 * 8;
      upper[c] = d < dim ? load16(from + d) : make_uint4(0, 0, 0, 0);
      lower[c] = d < dim ? load16(from + 8 * dim + d) : make_uint4(0, 0, 0, 0);
    }
  }
};
template <int dim>
struct Values {
  uint4 v[(dim + 63) / 64][4];
  // count: positions of the tile that hold values; what the others hold must not matter.
  template <class H>
  __device__ void load(const H* tile, int count) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int h = 0; h < (dim + 63) / 64; ++h) {
      const int d = 64 * h + lane / 4 * 8;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int slot = lane % 4 * 2 + i % 2 + i / 2 * 8;
        v[h][i] = d < dim && slot < count ? load16(tile + slot * dim + d) : make_uint4(0, 0, 0, 0);
      }
    }
  }
};

// Scores of 16 positions become weights relative to the row's highest so far; the sums before are scaled to match.
template <class H, int dim, int column_tiles>
__device__ inline void weigh(Rows<H, dim, column_tiles>& r, float s[column_tiles][4], int position, float scale, float softcap) {
#pragma unroll
  for (int j = 0; j < column_tiles; ++j) {
    float top[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
#pragma unroll
      for (int k = 0; k < 2; ++k) {  // this lane's two positions
        float v = s[j][2 * k + i] * scale;
        if (softcap > 0) v = softcap * kLog2E * tanhf(v / softcap);
        const int at = position + 8 * k;
        s[j][2 * k + i] = at <= r.last[j][i] && at >= r.first[j][i] ? v : -INFINITY;
      }
      top[i] = fmaxf(s[j][i], s[j][2 + i]);
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
    for (int i = 0; i < 4; ++i) {
      s[j][i] = s[j][i] == -INFINITY ? 0.0f : exp2_fast(s[j][i] - r.highest[j][i % 2]);
      r.total[j][i % 2] += s[j][i];
    }
  }
}

template <class H, int dim, int column_tiles>
__device__ inline void attend_tile(Rows<H, dim, column_tiles>& r, const Keys<dim>& keys, float s[column_tiles][4]) {
#pragma unroll
  for (int j = 0; j < column_tiles; ++j) {
#pragma unroll
    for (int i = 0; i < 4; ++i) s[j][i] = 0;
#pragma unroll
    for (int c = 0; c < r.kChunks; ++c) {
      const uint4 &u = keys.upper[c], &l = keys.lower[c], &q = r.q[j][c];
      mma<H>(s[j], u.x, l.x, u.y, l.y, q.x, q.y);
      mma<H>(s[j], u.z, l.z, u.w, l.w, q.z, q.w);
    }
  }
}

template <class H, int dim, int column_tiles>
__device__ inline void add_values(Rows<H, dim, column_tiles>& r, const Values<dim>& values, const float s[column_tiles][4]) {
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
      const uint32_t a = word(values.v[h][0], m), b = word(values.v[h][1], m), c = word(values.v[h][2], m), d = word(values.v[h][3], m);
      const uint32_t a0 = __byte_perm(a, b, 0x5410), a1 = __byte_perm(a, b, 0x7632), a2 = __byte_perm(c, d, 0x5410), a3 = __byte_perm(c, d, 0x7632);
#pragma unroll
      for (int j = 0; j < column_tiles; ++j) mma<H>(r.out[j][h][m], a0, a1, a2, a3, w[j][0], w[j][1]);
    }
  }
}

// The warps' rows into shared memory: [warp][rows][dim + 4].
template <class H, int dim, int column_tiles>
__device__ inline void leave_rows(const Rows<H, dim, column_tiles>& r, float* shared) {
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
