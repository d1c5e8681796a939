// Products of tiled weights (tiled.h) with some dozens of tokens. A block takes up to 64 tokens and 128 or 256 rows: eight warps, one
// or two tiles of 16 rows each. A step is a unit of 128 columns: the warps' weights, each its own, and the inputs, which all share, come
// through kStages stages of shared memory. In registers quants become f16 with scale and minimum applied - one rounding more
// than linear_quant.cu, paid back over the tokens - and are the left factor of tensor cores' products. Where blocks are too few
// for the device's processors they share the columns of a tile (slices), leave their sums in `parts`, and fold_kernel adds them
// in order.
#include <algorithm>

#include "kernels/cuda/half_types.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pipeline.cuh"
#include "kernels/cuda/products.h"
#include "kernels/cuda/tiled.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kThreads = 256, kWarps = kThreads / 32, kStages = 3, kBlockTokens = 64;
constexpr int kPitch = kUnitCols + 32;  // halves of a token's inputs in a stage: neighbours start half the banks apart
constexpr int kLeastUnits = 4;          // of a slice

struct ManyArgs {
  Output out;
  const __half* inputs;  // [T][cols] in the order of fragments
  int tokens, cols, slices, slice_units;
  float* parts;          // [slice][T][rows]
};

template <WeightType type, int column_tiles, int tiles>
struct Stage {
  static constexpr int kInputs = 8 * column_tiles * kPitch * 2, kSlot = tiles * Slot<type>::kBytes, kBytes = kInputs + kWarps * kSlot;
  uint8_t* at;
  __device__ uint8_t* slot() const { return at + kInputs + threadIdx.x / 32 * kSlot; }
  __device__ void fetch(const ManyArgs& a, int unit) const {
    constexpr int kPieces = kUnitCols / 8;
    const int first = blockIdx.y * kBlockTokens;
#pragma unroll
    for (int i = threadIdx.x; i < 8 * column_tiles * kPieces; i += kThreads) {
      const int token = i / kPieces, col = unit * kUnitCols + i % kPieces * 8;
      const bool there = first + token < a.tokens && col < a.cols;
      const __half* from = a.inputs + (there ? size_t(first + token) * a.cols + col : 0);
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(at) + token * (kPitch * 2) + i % kPieces * 16), "l"(from),
                   "r"(there ? 16 : 0) : "memory");
    }
    const int tile = (blockIdx.x * kWarps + threadIdx.x / 32) * tiles, last = (a.out.rows - 1) / kUnitRows;
#pragma unroll
    for (int i = 0; i < tiles; ++i)  // the last tile in place of those past the end
      Slot<type>::copy(shared_address(slot()) + i * Slot<type>::kBytes,
                       a.out.weight + size_t(min(tile + i, last)) * tile_bytes(type, a.cols) + size_t(unit) * unit_bytes(type));
  }
};

__device__ inline uint32_t both(float v) { return pair_in_range<__half>(v, v); }

template <WeightType type, int column_tiles, int tiles>
__device__ inline void multiply_stage(float sums[tiles][column_tiles][4], const Stage<type, column_tiles, tiles>& stage) {
  const int lane = threadIdx.x % 32;
  Unit<type> u[tiles];
#pragma unroll
  for (int i = 0; i < tiles; ++i) u[i].read(stage.slot() + i * Slot<type>::kBytes);
  const uint8_t* x_of_lane = stage.at + lane / 4 * (kPitch * 2) + lane % 4 * 16;
#pragma unroll
  for (int b = 0; b < 4; ++b) {
    uint32_t a[tiles][2][4];
#pragma unroll
    for (int i = 0; i < tiles; ++i) {
      const BlockScales s = scales_of<type>([&](int k) { return u[i].scales[k]; }, b);
      const uint32_t min[2] = {both(-s.min[0]), both(-s.min[1])};
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        left_of<type>([&](int p, int k) { return u[i].pieces[p][k]; }, b, m, a[i][m]);
        const uint32_t scale[2] = {both(s.scale[m][0]), both(s.scale[m][1])};
#pragma unroll
        for (int k = 0; k < 4; ++k) a[i][m][k] = half2_fma(a[i][m][k], scale[k % 2], min[k % 2]);
      }
    }
#pragma unroll
    for (int j = 0; j < column_tiles; ++j) {
      const uint4 x = *reinterpret_cast<const uint4*>(x_of_lane + j * 8 * (kPitch * 2) + b * 64);
#pragma unroll
      for (int i = 0; i < tiles; ++i) {
        mma<__half>(sums[i][j], a[i][0][0], a[i][0][1], a[i][0][2], a[i][0][3], x.x, x.y);
        mma<__half>(sums[i][j], a[i][1][0], a[i][1][1], a[i][1][2], a[i][1][3], x.z, x.w);
      }
    }
  }
}

template <WeightType type, int column_tiles, int tiles>
__global__ void __launch_bounds__(kThreads, tiles == 1 ? 2 : 1) quant_many_kernel(const __grid_constant__ ManyArgs a) {
  using S = Stage<type, column_tiles, tiles>;
  extern __shared__ __align__(128) uint8_t dynamic[];
  let_next_begin();
  wait_for_previous();
  const int begin = blockIdx.z * a.slice_units, end = min(units_of(a.cols), begin + a.slice_units);
  const auto stage = [&](int i) { return S{dynamic + i * S::kBytes}; };
  const auto fetch = [&](int unit, int i) {
    if (unit < end) stage(i).fetch(a, unit);
    asm volatile("cp.async.commit_group;" ::: "memory");
  };
  for (int i = 0; i < kStages - 1; ++i) fetch(begin + i, i);
  float sums[tiles][column_tiles][4] = {};
  for (int unit = begin, now = 0; unit < end; ++unit, now = now + 1 == kStages ? 0 : now + 1) {
    asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2) : "memory");
    __syncthreads();  // the stage is here for all, and all are done with the one before
    fetch(unit + kStages - 1, (now + kStages - 1) % kStages);
    multiply_stage<type, column_tiles, tiles>(sums, stage(now));
  }
  const int lane = threadIdx.x % 32, first = (blockIdx.x * kWarps + threadIdx.x / 32) * tiles * kUnitRows + lane / 4;
#pragma unroll
  for (int i = 0; i < tiles; ++i) {
#pragma unroll
    for (int j = 0; j < column_tiles; ++j) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int row = first + i * kUnitRows + k / 2 * 8, token = blockIdx.y * kBlockTokens + 8 * j + lane % 4 * 2 + k % 2;
        if (row >= a.out.rows || token >= a.tokens) continue;
        if (a.slices > 1) {
          a.parts[(size_t(blockIdx.z) * a.tokens + token) * a.out.rows + row] = sums[i][j][k];
          continue;
        }
        float* y = a.out.y + size_t(token) * a.out.y_stride + row;
        float v = sums[i][j][k] + (a.out.bias ? a.out.bias[row] : 0.0f);
        *y = a.out.accumulate ? __ldcg(y) + v : v;
      }
    }
  }
}

__global__ void __launch_bounds__(kThreads) fold_kernel(const __grid_constant__ ManyArgs a) {
  let_next_begin();
  wait_for_previous();
  const int row = blockIdx.x * kThreads + threadIdx.x, token = blockIdx.y;
  if (row >= a.out.rows) return;
  const float* from = a.parts + size_t(token) * a.out.rows + row;
  const size_t step = size_t(a.tokens) * a.out.rows;
  float v = a.out.bias ? a.out.bias[row] : 0.0f;
#pragma unroll 4
  for (int i = 0; i < a.slices; ++i) v += __ldcg(from + i * step);
  float* y = a.out.y + size_t(token) * a.out.y_stride + row;
  *y = a.out.accumulate ? __ldcg(y) + v : v;
}

template <WeightType type, int column_tiles, int tiles>
void launch_many(CudaContext* c, ManyArgs a) {
  constexpr int kBlockRows = kWarps * tiles * kUnitRows;
  const int rows = (a.out.rows + kBlockRows - 1) / kBlockRows, tokens = (a.tokens + kBlockTokens - 1) / kBlockTokens, units = units_of(a.cols);
  const int blocks = (tiles == 1 ? 2 : 1) * c->processors;
  const size_t room = kPartTiles * kPartFloats / (size_t(a.tokens) * a.out.rows);
  const int wanted = std::clamp(std::min({blocks / (rows * tokens), int(std::min<size_t>(room, 64)), units / kLeastUnits}), 1, 64);
  a.slice_units = (units + wanted - 1) / wanted;
  a.slices = (units + a.slice_units - 1) / a.slice_units;
  const auto kernel = quant_many_kernel<type, column_tiles, tiles>;
  constexpr int kShared = kStages * Stage<type, column_tiles, tiles>::kBytes;
  note(c, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared));
  note(c, launch_early(c->stream, dim3(unsigned(rows), unsigned(tokens), unsigned(a.slices)), kThreads, kShared, kernel, a));
  if (a.slices > 1)
    note(c, launch_early(c->stream, dim3(unsigned((a.out.rows + kThreads - 1) / kThreads), unsigned(a.tokens)), kThreads, 0, fold_kernel, a));
}

}  // namespace

void multiply_quant_many(CudaContext* c, WeightType type, const Product& p, const LinearArgs& a) noexcept {
  prepare_fragments(c, a, p.cols);
  for (int i = 0; i < p.outputs; ++i) {
    const ManyArgs m{p.out[i], reinterpret_cast<const __half*>(c->inputs), p.tokens, p.cols, 1, 0, c->parts};
    with_tiled(type, [&]<WeightType t>() {
      if (p.tokens <= 16) launch_many<t, 2, 1>(c, m);
      else if (p.tokens <= 32) launch_many<t, 4, 1>(c, m);
      else launch_many<t, 8, 2>(c, m);
    });
  }
}

}  // namespace sluice::kernels::cuda
