// A product of tiled weights (tiled.h) with up to 8 tokens, as eight warps compute it (few_tiles.cuh): weights are read as they are stored, a step is a unit of 128
// columns. Quants become whole numbers in f16 in registers, products of columns that share a scale are summed apart
// by the tensor cores and then scaled in float32; a type's minimum takes the sum of the block's inputs. Inputs are f16, in shared
// memory in the order of the fragments.
#pragma once
#include "kernels/cuda/few_tiles.cuh"
#include "kernels/cuda/half_types.cuh"
#include "kernels/cuda/tiled.cuh"
#include "kernels/cuda/tiled.h"

namespace sluice::kernels::cuda {

// Two tiles at a time share inputs, where slots are small enough for several in flight, and under a gate.
template <class T> constexpr bool kIsSmall = Slot<T>::kBytes <= 1792;
template <class T> constexpr int kMostTiles = kIsSmall<T> ? 2 : 1;
template <class T, int tiles> constexpr int kDepthOf = tiles == 2 ? (kIsSmall<T> ? 3 : 2) : Slot<T>::kBytes <= 2048 ? 4 : 3;

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
template <bool with_sums>
__device__ inline void place_eight(const FragmentInputs& in, int token, int k, const uint32_t words[4]) {
  __half* at = in.rows + token * in.pitch + fragment_place(k);
#pragma unroll
  for (int i = 0; i < 4; ++i) *reinterpret_cast<uint32_t*>(at + 8 * i) = words[i];
  if constexpr (!with_sums) return;
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) sum += half_bits(words[i] & 0xFFFF) + half_bits(words[i] >> 16);
  const uint32_t four = 0xFu << (threadIdx.x % 32 / 4 * 4);
  sum += __shfl_xor_sync(four, sum, 1);
  sum += __shfl_xor_sync(four, sum, 2);
  if (k % 32 == 0) in.sums[k / 32 * kFragmentTokens + token] = sum;
}

template <bool with_sums>
__device__ inline void place_fragments(const FewArgs& a, const FragmentInputs& in) {
  const int cols = a.p.cols, padded = units_of(cols) * kUnitCols;
  for (int i = threadIdx.x; i < a.p.tokens * (padded - cols) / 8; i += kFewThreads) {
    const int token = i / ((padded - cols) / 8), k = cols + i % ((padded - cols) / 8) * 8;
    *reinterpret_cast<uint4*>(in.rows + token * in.pitch + k) = make_uint4(0, 0, 0, 0);
  }
  for (int i = threadIdx.x; with_sums && i < padded / 32 * kFragmentTokens; i += kFewThreads)
    if (i / kFragmentTokens >= cols / 32 || i % kFragmentTokens >= a.p.tokens) in.sums[i] = 0;
  if (a.inputs) {
    wait_for_previous();
    const int pieces = cols / 8;
    const auto* from = static_cast<const uint4*>(a.inputs);
#pragma unroll 4
    for (int i = threadIdx.x; i < a.p.tokens * pieces; i += kFewThreads) {
      const uint4 v = __ldcg(from + i);
      const uint32_t words[4] = {v.x, v.y, v.z, v.w};
      place_eight<with_sums>(in, i / pieces, i % pieces * 8, words);
    }
  } else {
    for (int t = 0; t < a.p.tokens; ++t)
      prepare_row(a.prologue, a.x + size_t(t) * a.x_stride, cols, a.norm_weight, a.eps, 0, 1, [&](int k, const float v[8]) {
        const uint32_t words[4] = {pair_of<__half>(v[0], v[1]), pair_of<__half>(v[2], v[3]), pair_of<__half>(v[4], v[5]), pair_of<__half>(v[6], v[7])};
        place_eight<with_sums>(in, t, k, words);
      }, wait_for_previous);
  }
}

// Minimums of 32 columns take sums of inputs that were made with them, of 16 sums that the tensor cores make.
template <class T> constexpr bool kTakesSums = T::kHasMin && T::kGroup == 32;

// sums += one unit's weights * inputs of its 128 columns; totals: this lane's two tokens' of the first 32. Products of up to 64 columns that share a scale are summed
// before they are scaled.
template <class T>
__device__ inline void multiply_unit(float sums[4], const Lane<T>& lane, const uint4 x[4], const float* totals) {
  constexpr int kTogether = (T::kGroup < 64 ? T::kGroup : 64) / 16;
  float part[4];
#pragma unroll
  for (int half = 0; half < kUnitHalves; ++half) {
    const uint32_t x0 = half % 2 ? x[half / 2].z : x[half / 2].x, x1 = half % 2 ? x[half / 2].w : x[half / 2].y;
    uint32_t a[4];
    T::left(lane, half, a);
    if (half % kTogether == 0) mma_alone(part, a, x0, x1);
    else mma<__half>(part, a[0], a[1], a[2], a[3], x0, x1);
    if ((half + 1) % kTogether != 0) continue;
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[i] = fmaf(T::scale(lane, half, i / 2), part[i], sums[i]);
    if constexpr (T::kHasMin) {
      float total[4];
      if constexpr (kTakesSums<T>) {
        const float2 both = *reinterpret_cast<const float2*>(totals + half / 2 * kFragmentTokens);
        total[0] = total[2] = both.x, total[1] = total[3] = both.y;
      } else {
        constexpr uint32_t kOnes[4] = {0x3C003C00u, 0x3C003C00u, 0x3C003C00u, 0x3C003C00u};
        mma_alone(total, kOnes, x0, x1);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) sums[i] = fmaf(-T::min(lane, half, i / 2), total[i], sums[i]);
    }
  }
}

template <class T, int tiles>
struct TiledWeights {
  static constexpr int kDepth = kDepthOf<T, tiles>, kSlotBytes = tiles * Slot<T>::kBytes, kRows = tiles * kUnitRows;
  using Fold = float[kFewWarps][kFragmentTokens][kRows + 1];
  using Inputs = FragmentInputs;
  __host__ __device__ static constexpr int steps(int cols) { return units_of(cols); }
  __device__ static Inputs place(const FewArgs& a, uint8_t* shared) {
    const int pitch = steps(a.p.cols) * kUnitCols + kFragmentPad;
    const Inputs in{reinterpret_cast<__half*>(shared), reinterpret_cast<float*>(shared + size_t(a.p.tokens) * pitch * 2), pitch};
    place_fragments<kTakesSums<T>>(a, in);
    __syncthreads();
    return in;
  }

  struct Rows {
    const uint8_t* tile[tiles];
    __device__ void enter(const FewArgs& a, int index) {
      const Group group(a, index, tiles);
#pragma unroll
      for (int i = 0; i < tiles; ++i) tile[i] = group.tile(i, tile_bytes<T>(a.p.cols));
    }
    __device__ void copy(uint32_t slot, int step, uint64_t) const {
#pragma unroll
      for (int i = 0; i < tiles; ++i) Slot<T>::copy(slot + i * Slot<T>::kBytes, tile[i] + size_t(step) * kUnitBytes<T>);
    }
  };

  class Summing {
   public:
    __device__ explicit Summing(uint8_t* slot) : ring_(slot) {}
    __device__ void begin(const FewArgs& a, const Inputs& in) {
      const int lane = threadIdx.x % 32;
      x_ = in.rows + min(lane / 4, a.p.tokens - 1) * in.pitch + lane % 4 * 8;
      totals_ = in.sums + lane % 4 * 2;
    }
    template <class Walk>
    __device__ void leave(const FewArgs& a, int, Walk& walk, Fold& fold) {
      float sums[tiles][4] = {};
      for (int unit = few_warp(); unit < steps(a.p.cols); unit += kFewWarps) {
        ring_wait<TiledWeights>();
        uint8_t* at = ring_ + slot_ * kRingStep<TiledWeights>;
        uint4 x[4];
#pragma unroll
        for (int b = 0; b < 4; ++b) x[b] = *reinterpret_cast<const uint4*>(x_ + unit * kUnitCols + b * 32);
#pragma unroll
        for (int i = 0; i < tiles; ++i) {
          Lane<T> lane;
          Slot<T>::read(lane, at + i * Slot<T>::kBytes);
          multiply_unit<T>(sums[i], lane, x, totals_ + unit * 4 * kFragmentTokens);
        }
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
    const __half* x_;      // of this lane's token; of another where there are fewer, and what comes of it is not read
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
