// Products of tiled weights (tiled.h) with a few tokens: the weights' bytes are all that counts, and they are read as they are
// stored. As in linear_few.cu, every thread copies its own weights to a ring of its own in shared memory, kDepth units ahead and
// across tiles; a block's eight warps share a tile's units. Two blocks a processor hide each other's folding. Quants become whole numbers in f16 in registers, products of a
// block of 32 columns (16 where those have scales) are summed apart by the tensor cores and then scaled in float32; a type's minimum takes the
// sum of the block's inputs. Inputs are f16, in shared memory in the order of the fragments.
#include <algorithm>

#include "kernels/cuda/half_types.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pipeline.cuh"
#include "kernels/cuda/products.h"
#include "kernels/cuda/prologue.cuh"
#include "kernels/cuda/tickets.cuh"
#include "kernels/cuda/tiled.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kThreads = kPrologueThreads, kWarps = kThreads / 32, kTokens = 8;
constexpr int kPad = 32;          // halves after a row of inputs: neighbours start half the banks apart
constexpr int kFusedTokens = 2, kFusedCols = 8192;  // up to here, blocks prepare their inputs themselves
constexpr size_t kInputBytes = 96 * 1024;

struct QuantArgs {
  Product p;
  int group_end[kMaxLinearOutputs];  // groups of tiles of the outputs up to and with this one
  const void* inputs;                // f16 [T][cols] where they are prepared; else x is
  Prologue prologue;
  const float* x;
  int x_stride;
  const float* norm_weight;
  float eps;
  int* tickets;
};

// Two tiles at a time share inputs, where slots are small enough for several in flight, and under a gate.
template <WeightType type> constexpr bool kIsSmall = Slot<type>::kBytes <= 1792;
template <WeightType type> constexpr int kMostTiles = kIsSmall<type> ? 2 : 1;
template <WeightType type, int tiles> constexpr int kDepthOf = tiles == 2 ? (kIsSmall<type> ? 3 : 2) : Slot<type>::kBytes <= 2048 ? 4 : 3;

// A group is `tiles` tiles of 16 rows of one output; under a gate, two tiles: one of each.
struct Group {
  const Output* out;
  int row;
  bool gated;
  __device__ Group(const QuantArgs& a, int group, int tiles) {
    int i = 0;
    while (i + 1 < a.p.outputs && group >= a.group_end[i]) ++i;
    gated = a.p.gate != Gate::kNone;
    out = &a.p.out[i];
    row = (group - (i ? a.group_end[i - 1] : 0)) * (gated ? 1 : tiles) * kUnitRows;
  }
  // Tile i; the last one in place of those past the end.
  __device__ const uint8_t* tile(int i, size_t bytes) const {
    return gated ? out[i].weight + size_t(row / kUnitRows) * bytes : out->weight + size_t(min(row / kUnitRows + i, (out->rows - 1) / kUnitRows)) * bytes;
  }
};

template <WeightType type, int tiles>
struct Walk {
  const QuantArgs& a;
  const Tiles& groups;
  int number = 0, index, unit;
  const uint8_t* tile[tiles];
  __device__ Walk(const QuantArgs& a, const Tiles& groups) : a(a), groups(groups), index(groups.at(0)) { enter(); }
  __device__ bool more() const { return index < a.group_end[a.p.outputs - 1]; }
  __device__ void enter() {
    unit = threadIdx.x / 32;
    if (!more() || unit >= units_of(a.p.cols)) return void(index = a.group_end[a.p.outputs - 1]);
    const Group group(a, index, tiles);
#pragma unroll
    for (int i = 0; i < tiles; ++i) tile[i] = group.tile(i, tile_bytes(type, a.p.cols));
  }
  __device__ void copy(uint32_t slot) {
    if (more()) {
#pragma unroll
      for (int i = 0; i < tiles; ++i) Slot<type>::copy(slot + i * Slot<type>::kBytes, tile[i] + size_t(unit) * unit_bytes(type));
      if ((unit += kWarps) >= units_of(a.p.cols)) index = groups.at(++number), enter();
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
};

// Inputs in shared memory: rows of f16 in the order of fragments, and the sum of each block of 32 of each token.
struct Inputs {
  __half* rows;
  float* sums;  // [blocks][kTokens]
  int pitch;
};

// Eight neighbours at column k of a token, k a multiple of 8: two lanes of four of a fragment's half. Threads that hold a block's
// four eights are neighbours and come here together.
template <bool has_min>
__device__ inline void place_eight(const Inputs& in, int token, int k, const uint32_t words[4]) {
  __half* at = in.rows + token * in.pitch + fragment_place(k);
  *reinterpret_cast<uint2*>(at) = make_uint2(words[0], words[1]);
  *reinterpret_cast<uint2*>(at + 8) = make_uint2(words[2], words[3]);
  if constexpr (!has_min) return;
  float sum = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) sum += half_bits(words[i] & 0xFFFF) + half_bits(words[i] >> 16);
  const uint32_t four = 0xFu << (threadIdx.x % 32 / 4 * 4);
  sum += __shfl_xor_sync(four, sum, 1);
  sum += __shfl_xor_sync(four, sum, 2);
  if (k % 32 == 0) in.sums[k / 32 * kTokens + token] = sum;
}

template <bool has_min>
__device__ inline void place_inputs(const QuantArgs& a, const Inputs& in) {
  const int cols = a.p.cols, padded = units_of(cols) * kUnitCols;
  for (int i = threadIdx.x; i < a.p.tokens * (padded - cols) / 8; i += kThreads) {
    const int token = i / ((padded - cols) / 8), k = cols + i % ((padded - cols) / 8) * 8;
    *reinterpret_cast<uint4*>(in.rows + token * in.pitch + k) = make_uint4(0, 0, 0, 0);
  }
  for (int i = threadIdx.x; has_min && i < padded / 32 * kTokens; i += kThreads)
    if (i / kTokens >= cols / 32 || i % kTokens >= a.p.tokens) in.sums[i] = 0;
  if (a.inputs) {
    const int pieces = cols / 8;
    const auto* from = static_cast<const uint4*>(a.inputs);
#pragma unroll 4
    for (int i = threadIdx.x; i < a.p.tokens * pieces; i += kThreads) {
      const uint4 v = __ldcg(from + i);
      const uint32_t words[4] = {v.x, v.y, v.z, v.w};
      place_eight<has_min>(in, i / pieces, i % pieces * 8, words);
    }
  } else {
    for (int t = 0; t < a.p.tokens; ++t)
      prepare_row(a.prologue, a.x + size_t(t) * a.x_stride, cols, a.norm_weight, a.eps, 0, 1, [&](int k, const float v[8]) {
        const uint32_t words[4] = {pair_of<__half>(v[0], v[1]), pair_of<__half>(v[2], v[3]), pair_of<__half>(v[4], v[5]), pair_of<__half>(v[6], v[7])};
        place_eight<has_min>(in, t, k, words);
      });
  }
  __syncthreads();
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

// A group's results under a gate: 16 rows, of both weights' sums over the warps.
template <class Fold>
__device__ inline void store_gated(const QuantArgs& a, const Group& group, const Fold& fold) {
  const int token = threadIdx.x / kUnitRows, r = threadIdx.x % kUnitRows, row = group.row + r;
  if (token >= a.p.tokens || row >= group.out->rows) return;
  float v = 0, up = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) v += fold[w][token][r], up += fold[w][token][r + kUnitRows];
  const Output& o = *group.out;
  store_element(o.y, o.y_type, size_t(token) * o.y_stride + row, gated(a.p.gate, v, up));
}

template <WeightType type, int tiles>
__global__ void __launch_bounds__(kThreads, 2) quant_kernel(const __grid_constant__ QuantArgs a, int input_bytes) {
  constexpr int kDepth = kDepthOf<type, tiles>, kSlot = tiles * Slot<type>::kBytes, kRows = tiles * kUnitRows;
  extern __shared__ __align__(128) uint8_t dynamic[];
  __shared__ float folds[2][kWarps][kTokens][kRows + 1];
  let_next_begin();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, units = units_of(a.p.cols);
  uint8_t* ring = dynamic + input_bytes + warp * kDepth * kSlot;
  __shared__ int queue[Tiles::kQueue];
  // A warp has so many units of a tile at least, and copies begin kDepth of them ahead.
  Tiles groups(queue, a.tickets, a.group_end[a.p.outputs - 1], 1 + kDepth / max(1, units / kWarps));
  Walk<type, tiles> walk(a, groups);
#pragma unroll
  for (int i = 0; i < kDepth; ++i) walk.copy(shared_address(ring + i * kSlot));
  wait_for_previous();
  const int pitch = units * kUnitCols + kPad;
  const Inputs in{reinterpret_cast<__half*>(dynamic), reinterpret_cast<float*>(dynamic + size_t(a.p.tokens) * pitch * 2), pitch};
  place_inputs<kHasMin<type>>(a, in);
  const __half* x_of_lane = lane / 4 < a.p.tokens ? in.rows + lane / 4 * pitch + lane % 4 * 8 : nullptr;
  const float* totals_of_lane = in.sums + lane % 4 * 2;

  int slot = 0, parity = 0, index = groups.at(0);
  for (int number = 0; index < a.group_end[a.p.outputs - 1]; index = groups.at(++number), parity ^= 1) {
    const Group group(a, index, tiles);
    int drawn = 0;
    if (threadIdx.x == 0) drawn = groups.draw();
    const Output& o = *group.out;
    float sums[tiles][4] = {};
    for (int unit = warp; unit < units; unit += kWarps) {
      asm volatile("cp.async.wait_group %0;" ::"n"(kDepth - 1) : "memory");
      uint8_t* at = ring + slot * kSlot;
      uint4 x[4];
      float2 totals[4] = {};
#pragma unroll
      for (int b = 0; b < 4; ++b) {
        x[b] = x_of_lane ? *reinterpret_cast<const uint4*>(x_of_lane + unit * kUnitCols + b * 32) : make_uint4(0, 0, 0, 0);
        if (kHasMin<type>) totals[b] = *reinterpret_cast<const float2*>(totals_of_lane + (unit * 4 + b) * kTokens);
      }
      Unit<type> u[tiles];
#pragma unroll
      for (int i = 0; i < tiles; ++i) u[i].read(at + i * Slot<type>::kBytes);
#pragma unroll
      for (int i = 0; i < tiles; ++i) multiply_unit<type>(sums[i], u[i], x, totals);
      walk.copy(shared_address(at));
      if (++slot == kDepth) slot = 0;
    }
    auto& fold = folds[parity];
#pragma unroll
    for (int t = 0; t < tiles; ++t) {
#pragma unroll
      for (int i = 0; i < 4; ++i) fold[warp][lane % 4 * 2 + i % 2][16 * t + lane / 4 + i / 2 * 8] = sums[t][i];
    }
    if (threadIdx.x == 0) groups.put(number, drawn);
    __syncthreads();  // the other half of folds is read before the next of these
    if (tiles == 2 && group.gated) {
      store_gated(a, group, fold);
      continue;
    }
    for (int i = threadIdx.x; i < a.p.tokens * kRows; i += kThreads) {
      const int token = i / kRows, r = i % kRows, row = group.row + r;
      if (row >= o.rows) continue;
      float v = o.bias ? o.bias[row] : 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) v += fold[w][token][r];
      float* y = o.y + size_t(token) * o.y_stride + row;
      *y = o.accumulate ? __ldcg(y) + v : v;
    }
  }
  if (threadIdx.x == 0) groups.leave();
}

// With sums whether a type needs them or not, so that passes are the same for all.
size_t bytes_of_inputs(int tokens, int cols) {
  const size_t padded = size_t(units_of(cols)) * kUnitCols;
  return (tokens * (padded + kPad) * 2 + padded / 32 * kTokens * sizeof(float) + 127) / 128 * 128;
}
int tokens_a_pass(int cols) {
  int tokens = kTokens;
  while (tokens > 1 && bytes_of_inputs(tokens, cols) > kInputBytes) --tokens;
  return tokens;
}

template <WeightType type, int tiles>
void launch_quant(CudaContext* c, QuantArgs a) {
  a.tickets = next_tickets(c);
  int groups = 0;
  for (int i = 0; i < a.p.outputs; ++i) a.group_end[i] = groups += (a.p.out[i].rows + tiles * kUnitRows - 1) / (tiles * kUnitRows);
  if (a.p.gate != Gate::kNone) a.group_end[0] = a.group_end[1] = groups = (a.p.out[0].rows + kUnitRows - 1) / kUnitRows;
  const size_t inputs = bytes_of_inputs(a.p.tokens, a.p.cols), shared = inputs + size_t(kWarps) * kDepthOf<type, tiles> * tiles * Slot<type>::kBytes;
  const auto kernel = quant_kernel<type, tiles>;
  note(c, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared)));
  note(c, launch_early({c->stream, a.p.tokens}, dim3(unsigned(std::min(groups, 2 * c->processors))), kThreads, shared, kernel, a, int(inputs)));
}

template <WeightType type>
void multiply_quant_of(CudaContext* c, const Product& p, const LinearArgs& a) {
  QuantArgs q{p, {}, nullptr, a.prologue, a.x.floats(), a.x_stride, a.norm_weight, a.eps, nullptr};
  int rows = 0;
  for (int i = 0; i < p.outputs; ++i) rows += p.out[i].rows;
  constexpr int kMost = kMostTiles<type>;
  const bool two = p.gate != Gate::kNone || (kMost == 2 && rows >= kMost * kUnitRows * c->processors * 4 / 3);
  const auto launch = two ? launch_quant<type, 2> : launch_quant<type, 1>;
  const int step = tokens_a_pass(p.cols);
  if (a.prologue == Prologue::kNone && a.x.type == DType::kF16 && a.x_stride == p.cols && p.tokens <= step) {
    q.inputs = a.x.data;
    return launch(c, q);
  }
  if (p.tokens <= kFusedTokens && p.cols <= kFusedCols && a.x.type == DType::kF32) return launch(c, q);
  prepare_halves(c, WeightType::kF16, a, p.cols, 1);
  for (int first = 0; first < p.tokens; first += step) {
    q.p.tokens = std::min(step, p.tokens - first);
    q.inputs = reinterpret_cast<const __half*>(c->inputs) + size_t(first) * p.cols;
    for (int i = 0; i < p.outputs; ++i) q.p.out[i].y = p.out[i].y_at(size_t(first) * size_t(p.out[i].y_stride));
    launch(c, q);
  }
}

// A warp a unit; two rows of four neighbours at a time.
template <WeightType type>
__global__ void __launch_bounds__(kThreads) expand_kernel(const uint8_t* tiles, int cols, int begin, int end, __half* to) {
  const int unit = (blockIdx.x * kThreads + threadIdx.x) / 32, lane = threadIdx.x % 32, units = units_of(cols);
  const int tile = unit / units, g = lane / 4;
  if (begin + tile * kUnitRows >= end) return;
  const uint8_t* from = tiles + size_t(begin / kUnitRows) * tile_bytes(type, cols) + size_t(unit) * unit_bytes(type);
  const uint8_t* scales = from + unit_pieces(type) * 512;
  uint32_t pieces[unit_pieces(type)][4];
#pragma unroll
  for (int p = 0; p < unit_pieces(type); ++p) {
    const uint4 v = *reinterpret_cast<const uint4*>(from + p * 512 + lane * 16);
    pieces[p][0] = v.x, pieces[p][1] = v.y, pieces[p][2] = v.z, pieces[p][3] = v.w;
  }
#pragma unroll
  for (int b = 0; b < 4; ++b) {
    const BlockScales s = scales_of<type>([&](int i) { return word_of(scales + scale_at<type>(g, i)); }, b);
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      uint32_t a[4];
      left_of<type>([&](int p, int i) { return pieces[p][i]; }, b, m, a);
      const int col = unit % units * kUnitCols + b * 32 + m * 16 + lane % 4 * 4;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = tile * kUnitRows + g + 8 * r;
        if (begin + row >= end || col >= cols) continue;
        uint32_t words[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const uint32_t pair = a[2 * i + r];
          words[i] = pair_in_range<__half>(fmaf(s.scale[m][r], half_bits(pair & 0xFFFF), -s.min[r]), fmaf(s.scale[m][r], half_bits(pair >> 16), -s.min[r]));
        }
        *reinterpret_cast<uint2*>(to + size_t(row) * cols + col) = make_uint2(words[0], words[1]);
      }
    }
  }
}

}  // namespace

int quant_passes(const Product& p) noexcept {
  const int step = tokens_a_pass(p.cols);
  return (p.tokens + step - 1) / step;
}

void multiply_quant(CudaContext* c, WeightType type, const Product& p, const LinearArgs& a) noexcept {
  with_tiled(type, [&]<WeightType t>() { multiply_quant_of<t>(c, p, a); });
}

void expand_tiles(CudaContext* c, WeightType type, const Output& o, int cols, int begin, int end, void* to) noexcept {
  const int warps = (end - begin + kUnitRows - 1) / kUnitRows * units_of(cols), blocks = (warps * 32 + kThreads - 1) / kThreads;
  with_tiled(type, [&]<WeightType t>() {
    expand_kernel<t><<<blocks, kThreads, 0, c->stream>>>(o.weight, cols, begin, end, static_cast<__half*>(to));
  });
}

}  // namespace sluice::kernels::cuda
