// Products in float32 of rows of any type and length, and in tf32 by tiles. Inputs are float rows padded with zeros to whole
// groups of 32. Few tokens: a warp an output row, weights decoded in registers, the same order for any number of tokens. Many
// tokens: tiles of 64 x 64 on the tensor cores (both factors rounded to 11 bits, sums in float32), weights decoded into shared
// memory; several blocks share a tile's columns where tiles are few.
//
// W is a kind of weights:
//   eight(output, n, k, cols, whole, w)   elements [k, k + 8) of row n, zeros past its end; whole: rows are whole groups of eight
#pragma once
#include <mma.h>

#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/products.h"
#include "kernels/cuda/reduce.cuh"

namespace sluice::kernels::cuda {

constexpr int kPassTokens = 8;   // tokens that share one decoding of a row there
constexpr int kRowWarps = 4;
constexpr int kTile = 64, kDepth = 32, kPitch = kDepth + 4;
constexpr int kTileThreads = kTile * kDepth / 8;
constexpr int kFinishBlocks = kTile * kTile / kTileThreads;
constexpr int kSliceSteps = 3;   // steps of kDepth columns that a block should have at least

struct FloatRows {
  const float* x;
  int x_stride;
};

__device__ inline void store(const Output& o, int t, int n, float v) {
  if (o.bias) v += o.bias[n];
  float& y = o.y[size_t(t) * o.y_stride + n];
  y = o.accumulate ? y + v : v;
}

__device__ inline float4 tf32(float4 v) {
  using nvcuda::wmma::__float_to_tf32;
  return {__float_to_tf32(v.x), __float_to_tf32(v.y), __float_to_tf32(v.z), __float_to_tf32(v.w)};
}

template <class W, int tokens>
__global__ void __launch_bounds__(kRowWarps * 32) rows_kernel(const __grid_constant__ Product p, FloatRows in) {
  const Output& o = p.out[blockIdx.z];
  const int n = blockIdx.x * kRowWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (n >= o.rows) return;
  const int first = blockIdx.y * tokens, count = min(tokens, p.tokens - first);
  const float* x = in.x + size_t(first) * in.x_stride;
  const bool whole = p.cols % 8 == 0;
  float sum[tokens] = {};
  for (int k = lane * 8; k < p.cols; k += 256) {
    float w[8];
    W::eight(o, n, k, p.cols, whole, w);
#pragma unroll
    for (int t = 0; t < tokens; ++t) {
      if (t < count) {
        const auto* from = reinterpret_cast<const float4*>(x + size_t(t) * in.x_stride + k);
        const float4 a = from[0], b = from[1];
        float s = sum[t];
        s = fmaf(w[0], a.x, s), s = fmaf(w[1], a.y, s), s = fmaf(w[2], a.z, s), s = fmaf(w[3], a.w, s);
        s = fmaf(w[4], b.x, s), s = fmaf(w[5], b.y, s), s = fmaf(w[6], b.z, s), s = fmaf(w[7], b.w, s);
        sum[t] = s;
      }
    }
  }
#pragma unroll
  for (int t = 0; t < tokens; ++t) {
    const float s = warp_sum(sum[t]);
    if (lane == 0 && t < count) store(o, first + t, n, s);
  }
}

// The grid's z is an output and a slice of the columns. With one slice a block finishes its outputs itself; else it leaves
// its sums in `parts`, one tile of [slice][output][row of tiles][column of tiles], and finish_kernel folds them in order.
template <class W>
__global__ void __launch_bounds__(kTileThreads) tile_kernel(const __grid_constant__ Product p, FloatRows in, int slices, int slice_cols, float* parts) {
  namespace wmma = nvcuda::wmma;
  __shared__ __align__(32) float tile[2 * kTile * kPitch];  // inputs, then weights; the sums after the last step
  const int which = blockIdx.z / slices, slice = blockIdx.z % slices;
  const Output& o = p.out[which];
  const int n0 = blockIdx.x * kTile, t0 = blockIdx.y * kTile, warp = threadIdx.x / 32;
  if (n0 >= o.rows) return;
  float* const inputs = tile;
  float* const weights = tile + kTile * kPitch;
  const bool whole = p.cols % 8 == 0;
  const int wt = warp / 2 * 16, wn = warp % 2 * 32;  // this warp's 16 x 32
  // Each thread carries eight inputs and eight weights of the next step while this one is multiplied.
  const int r = threadIdx.x / (kDepth / 8), k = threadIdx.x % (kDepth / 8) * 8;
  const bool has_input = t0 + r < p.tokens, has_weight = n0 + r < o.rows;
  const float* x = in.x + size_t(has_input ? t0 + r : 0) * in.x_stride + k;
  const int end = min(p.cols, (slice + 1) * slice_cols);
  float4 a{}, b{};
  float w[8] = {};
  const auto fetch = [&](int k0) {
    if (has_input) {
      const auto* from = reinterpret_cast<const float4*>(x + k0);
      a = from[0], b = from[1];
    }
    if (has_weight && k0 + k < p.cols) {
      W::eight(o, n0 + r, k0 + k, p.cols, whole, w);
    } else {
#pragma unroll
      for (float& v : w) v = 0;
    }
  };
  wmma::fragment<wmma::accumulator, 16, 16, 8, float> sums[2];
  for (auto& s : sums) wmma::fill_fragment(s, 0.0f);
  const int first = slice * slice_cols;
  if (first < end) fetch(first);
  for (int k0 = first; k0 < end; k0 += kDepth) {
    auto* to = reinterpret_cast<float4*>(inputs + r * kPitch + k);
    to[0] = tf32(a), to[1] = tf32(b);
    to = reinterpret_cast<float4*>(weights + r * kPitch + k);
    to[0] = tf32({w[0], w[1], w[2], w[3]}), to[1] = tf32({w[4], w[5], w[6], w[7]});
    __syncthreads();
    if (k0 + kDepth < end) fetch(k0 + kDepth);
#pragma unroll
    for (int step = 0; step < kDepth; step += 8) {
      wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> left;
      wmma::load_matrix_sync(left, inputs + wt * kPitch + step, kPitch);
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::col_major> right;
        wmma::load_matrix_sync(right, weights + (wn + 16 * j) * kPitch + step, kPitch);
        wmma::mma_sync(sums[j], left, right, sums[j]);
      }
    }
    __syncthreads();
  }
  if (slices > 1) {
    float* to = parts + ((size_t(slice * int(gridDim.z / slices) + which) * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x) * kPartFloats;
    for (int j = 0; j < 2; ++j) wmma::store_matrix_sync(to + wt * kTile + wn + 16 * j, sums[j], kTile, wmma::mem_row_major);
    return;
  }
  constexpr int kSumPitch = kTile + 4;
  static_assert(kTile * kSumPitch <= 2 * kTile * kPitch);
  for (int j = 0; j < 2; ++j)
    wmma::store_matrix_sync(tile + wt * kSumPitch + wn + 16 * j, sums[j], kSumPitch, wmma::mem_row_major);
  __syncthreads();
  for (int i = threadIdx.x; i < kTile * kTile; i += kTileThreads) {
    const int t = i / kTile, n = i % kTile;
    if (t0 + t < p.tokens && n0 + n < o.rows) store(o, t0 + t, n0 + n, tile[t * kSumPitch + n]);
  }
}

inline int most_rows(const Product& p) {
  int rows = 0;
  for (int i = 0; i < p.outputs; ++i) rows = std::max(rows, p.out[i].rows);
  return rows;
}
// What tiles of several slices left in c->parts becomes the product; grid: of tiles and outputs.
void finish_slices(CudaContext* c, const Product& p, dim3 grid, int slices) noexcept;

template <class W>
void multiply_rows(CudaContext* c, const Product& p, const float* x, int x_stride) noexcept {
  const int blocks = (most_rows(p) + kRowWarps - 1) / kRowWarps;
  const FloatRows in{x, x_stride};
  if (p.tokens == 1) {
    launch(c, dim3(blocks, 1, p.outputs), kRowWarps * 32, rows_kernel<W, 1>, p, in);
  } else {
    const dim3 grid(blocks, (p.tokens + kPassTokens - 1) / kPassTokens, p.outputs);
    launch(c, grid, kRowWarps * 32, rows_kernel<W, kPassTokens>, p, in);
  }
}

template <class W>
void multiply_tiles(CudaContext* c, const Product& p, const float* x, int x_stride) noexcept {
  const dim3 tiles((most_rows(p) + kTile - 1) / kTile, (p.tokens + kTile - 1) / kTile, p.outputs);
  // Where tiles are too few for the device's processors, blocks share a tile's columns.
  const int count = int(tiles.x * tiles.y * tiles.z), steps = (p.cols + kDepth - 1) / kDepth;
  const int wanted = std::min({2 * c->processors / count, int(kPartTiles) / count, steps / kSliceSteps});
  const int slice_steps = (steps + std::max(wanted, 1) - 1) / std::max(wanted, 1), slices = (steps + slice_steps - 1) / slice_steps;
  const dim3 grid(tiles.x, tiles.y, tiles.z * slices);
  launch(c, grid, kTileThreads, tile_kernel<W>, p, FloatRows{x, x_stride}, slices, slice_steps * kDepth, c->parts);
  if (slices > 1) finish_slices(c, p, tiles, slices);
}

template <class W>
constexpr FloatProducts float_products_of() { return {multiply_rows<W>, multiply_tiles<W>}; }

}  // namespace sluice::kernels::cuda
