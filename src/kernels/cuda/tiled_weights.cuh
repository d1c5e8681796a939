// A product of tiled weights (tiled.h) with up to 8 tokens, as eight warps compute it (few_tiles.cuh): weights are read as they are stored, a step is a unit of 128
// columns. Quants become whole numbers in f16 in registers, products of a block of 32 columns (16 where those have scales) are summed apart
// by the tensor cores and then scaled in float32; a type's minimum takes the sum of the block's inputs. Inputs are f16, in shared
// memory in the order of the fragments.
#pragma once
#include "kernels/cuda/few_tiles.cuh"
#include "kernels/cuda/half_types.cuh"
#include "kernels/cuda/tiled.cuh"

namespace sluice::kernels::cuda {

constexpr int kFragmentTokens = 8;
constexpr int kFragmentPad = 32;  // halves after a row of inputs: neighbours start half the banks apart

// Two tiles at a time share inputs, where slots are small enough for several in flight, and under a gate.
template <WeightType type> constexpr bool kIsSmall = Slot<type>::kBytes <= 1792;
template <WeightType type> constexpr int kMostTiles = kIsSmall<type> ? 2 : 1;
template <WeightType type, int tiles> constexpr int kDepthOf = tiles == 2 ? (kIsSmall<type> ? 3 : 2) : Slot<type>::kBytes <= 2048 ? 4 : 3;

// A group is `tiles` tiles of 16 rows of one output; under a gate, two tiles: one of each.
struct Group {
  const Output* out;
  int row;
  bool gated;
  __device__ Group(const FewArgs& a, int group, int tiles) {
    int i = 0;
    while (i + 1 < a.p.outputs && group >= a.tile_end[i]) ++i;
    gated = a.p.gate != Gate::kNone;
    out = &a.p.out[i];
    row = (group - (i ? a.tile_end[i - 1] : 0)) * (gated ? 1 : tiles) * kUnitRows;
  }
  // Tile i; the last one in place of those past the end.
  __device__ const uint8_t* tile(int i, size_t bytes) const {
    return gated ? out[i].weight + size_t(row / kUnitRows) * bytes : out->weight + size_t(min(row / kUnitRows + i, (out->rows - 1) / kUnitRows)) * bytes;
  }
};

// Inputs in shared memory: rows of f16 in the order of fragments, and the sum of each block of 32 of each token.
struct FragmentInputs {
  __half* rows;
  float* sums;  // [blocks][kFragmentTokens]
  int pitch;
};

// Eight neighbours at column k of a token, k a multiple of 8: a pair of each of four lanes. Threads that hold a block's
// four eights are neighbours and come here together.
template <bool has_min>
__device__ inline void place_eight(const FragmentInputs& in, int token, int k, const uint32_t words[4]) {
  __half* at = in.rows + token * in.pitch + fragment_place(k);
#pragma unroll
  for (int i = 0; i < 4; ++i) *reinterpret_cast<uint32_t*>(at + 8 * i) = words[i];
  if constexpr (!has_min) return;
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) sum += half_bits(words[i] & 0xFFFF) + half_bits(words[i] >> 16);
  const uint32_t four = 0xFu << (threadIdx.x % 32 / 4 * 4);
  sum += __shfl_xor_sync(four, sum, 1);
  sum += __shfl_xor_sync(four, sum, 2);
  if (k % 32 == 0) in.sums[k / 32 * kFragmentTokens + token] = sum;
}

template <bool has_min>
__device__ inline void place_fragments(const FewArgs& a, const FragmentInputs& in) {
  const int cols = a.p.cols, padded = units_of(cols) * kUnitCols;
  for (int i = threadIdx.x; i < a.p.tokens * (padded - cols) / 8; i += kFewThreads) {
    const int token = i / ((padded - cols) / 8), k = cols + i % ((padded - cols) / 8) * 8;
    *reinterpret_cast<uint4*>(in.rows + token * in.pitch + k) = make_uint4(0, 0, 0, 0);
  }
  for (int i = threadIdx.x; has_min && i < padded / 32 * kFragmentTokens; i += kFewThreads)
    if (i / kFragmentTokens >= cols / 32 || i % kFragmentTokens >= a.p.tokens) in.sums[i] = 0;
  if (a.inputs) {
    wait_for_previous();
    const int pieces = cols / 8;
    const auto* from = static_cast<const uint4*>(a.inputs);
#pragma unroll 4
    for (int i = threadIdx.x; i < a.p.tokens * pieces; i += kFewThreads) {
      const uint4 v = __ldcg(from + i);
      const uint32_t words[4] = {v.x, v.y, v.z, v.w};
      place_eight<has_min>(in, i / pieces, i % pieces * 8, words);
    }
  } else {
    for (int t = 0; t < a.p.tokens; ++t)
      prepare_row(a.prologue, a.x + size_t(t) * a.x_stride, cols, a.norm_weight, a.eps, 0, 1, [&](int k, const float v[8]) {
        const uint32_t words[4] = {pair_of<__half>(v[0], v[1]), pair_of<__half>(v[2], v[3]), pair_of<__half>(v[4], v[5]), pair_of<__half>(v[6], v[7])};
        place_eight<has_min>(in, t, k, words);
      }, wait_for_previous);
  }
}

// sums += one unit's weights * inputs of its 128 columns.
template <WeightType type>
__device__ inline void multiply_unit(float sums[4], const Unit<type>& u, const uint4 x[4], const float2 totals[4]) {
#pragma unroll
  for (int b = 0; b < 4; ++b) {
    const BlockScales s = scales_of<type>([&](int i) { return u.scales[i]; }, b);
    uint32_t a[2][4];
#pragma unroll
    for (int m = 0; m < 2; ++m) left_of<type>([&](int p, int i) { return u.pieces[p][i]; }, b, m, a[m]);
    float part[2][4];
    mma_alone(part[0], a[0], x[b].x, x[b].y);
    if (type == WeightType::kQ6_K) mma_alone(part[1], a[1], x[b].z, x[b].w);
    else mma<__half>(part[0], a[1][0], a[1][1], a[1][2], a[1][3], x[b].z, x[b].w);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums[i] = fmaf(s.scale[0][i / 2], part[0][i], sums[i]);
      if (type == WeightType::kQ6_K) sums[i] = fmaf(s.scale[1][i / 2], part[1][i], sums[i]);
      if (kHasMin<type>) sums[i] = fmaf(-s.min[i / 2], i % 2 ? totals[b].y : totals[b].x, sums[i]);
    }
  }
}

template <WeightType type, int tiles>
struct TiledWeights {
  static constexpr int kDepth = kDepthOf<type, tiles>, kSlotBytes = tiles * Slot<type>::kBytes, kRows = tiles * kUnitRows;
  using Fold = float[kFewWarps][kFragmentTokens][kRows + 1];
  using Inputs = FragmentInputs;
  __host__ __device__ static constexpr int steps(int cols) { return units_of(cols); }
  // With sums whether a type needs them or not, so that passes are the same for all.
  __host__ __device__ static constexpr size_t input_bytes(int tokens, int cols) {
    const size_t padded = size_t(units_of(cols)) * kUnitCols;
    return (size_t(tokens) * (padded + kFragmentPad) * 2 + padded / 32 * kFragmentTokens * sizeof(float) + 127) / 128 * 128;
  }
  __device__ static Inputs place(const FewArgs& a, uint8_t* shared) {
    const int pitch = steps(a.p.cols) * kUnitCols + kFragmentPad;
    const Inputs in{reinterpret_cast<__half*>(shared), reinterpret_cast<float*>(shared + size_t(a.p.tokens) * pitch * 2), pitch};
    place_fragments<kHasMin<type>>(a, in);
    __syncthreads();
    return in;
  }

  struct Rows {
    const uint8_t* tile[tiles];
    __device__ void enter(const FewArgs& a, int index) {
      const Group group(a, index, tiles);
#pragma unroll
      for (int i = 0; i < tiles; ++i) tile[i] = group.tile(i, tile_bytes(type, a.p.cols));
    }
    __device__ void copy(uint32_t slot, int step, uint64_t) const {
#pragma unroll
      for (int i = 0; i < tiles; ++i) Slot<type>::copy(slot + i * Slot<type>::kBytes, tile[i] + size_t(step) * unit_bytes(type));
    }
  };

  class Summing {
   public:
    __device__ explicit Summing(uint8_t* slot) : ring_(slot) {}
    __device__ void begin(const FewArgs& a, const Inputs& in) {
      const int lane = threadIdx.x % 32;
      x_ = lane / 4 < a.p.tokens ? in.rows + lane / 4 * in.pitch + lane % 4 * 8 : nullptr;
      totals_ = in.sums + lane % 4 * 2;
    }
    template <class Walk>
    __device__ void leave(const FewArgs& a, int, Walk& walk, Fold& fold) {
      float sums[tiles][4] = {};
      for (int unit = few_warp(); unit < steps(a.p.cols); unit += kFewWarps) {
        ring_wait<TiledWeights>();
        uint8_t* at = ring_ + slot_ * kRingStep<TiledWeights>;
        uint4 x[4];
        float2 totals[4] = {};
#pragma unroll
        for (int b = 0; b < 4; ++b) {
          x[b] = x_ ? *reinterpret_cast<const uint4*>(x_ + unit * kUnitCols + b * 32) : make_uint4(0, 0, 0, 0);
          if (kHasMin<type>) totals[b] = *reinterpret_cast<const float2*>(totals_ + (unit * 4 + b) * kFragmentTokens);
        }
        Unit<type> u[tiles];
#pragma unroll
        for (int i = 0; i < tiles; ++i) u[i].read(at + i * Slot<type>::kBytes);
#pragma unroll
        for (int i = 0; i < tiles; ++i) multiply_unit<type>(sums[i], u[i], x, totals);
        walk.copy(shared_address(at));
        if (++slot_ == kDepth) slot_ = 0;
      }
      const int lane = threadIdx.x % 32;
#pragma unroll
      for (int t = 0; t < tiles; ++t) {
#pragma unroll
        for (int i = 0; i < 4; ++i) fold[few_warp()][lane % 4 * 2 + i % 2][16 * t + lane / 4 + i / 2 * 8] = sums[t][i];
      }
    }

   private:
    uint8_t* ring_;
    const __half* x_;      // of this lane's token
    const float* totals_;  // of its two columns of sums
    int slot_ = 0;
  };

  struct Store {
    Group group;
    __device__ Store(const FewArgs& a, int index) : group(a, index, tiles) {}
    __device__ void finish(const FewArgs& a, const Fold& fold) const {
      const Output& o = *group.out;
      const bool is_gated = tiles == 2 && group.gated;  // a row of each weight
      const int rows = is_gated ? kUnitRows : kRows;
      for (int i = threadIdx.x; i < a.p.tokens * rows; i += kFewThreads) {
        const int token = i / rows, r = i % rows, row = group.row + r;
        if (row >= o.rows) continue;
        float v = o.bias && !is_gated ? o.bias[row] : 0, up = 0;
#pragma unroll
        for (int w = 0; w < kFewWarps; ++w) v += fold[w][token][r];
        if (is_gated) {
#pragma unroll
          for (int w = 0; w < kFewWarps; ++w) up += fold[w][token][r + (tiles - 1) * kUnitRows];
          store_element(o.y, o.y_type, size_t(token) * o.y_stride + row, gated(a.p.gate, v, up));
          continue;
        }
        float* y = o.y + size_t(token) * o.y_stride + row;
        *y = o.accumulate ? __ldcg(y) + v : v;
      }
    }
  };
};

}  // namespace sluice::kernels::cuda
