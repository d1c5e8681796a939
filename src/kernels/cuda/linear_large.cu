// Products of many tokens by weights of f16, bf16 or e4m3, at the tensor cores' speed. A tile is 128 tokens by 256 output rows, or by 128 rows of both
// weights under a gate. Two blocks are a cluster with one tile's rows and the tokens of two: each copies its own tokens, and half of the rows for both,
// since a processor cannot read all of it from the second-level cache as fast as it multiplies. A block is a thread that has boxes copied to a ring in
// shared memory, and two warpgroups of workers with 64 tokens each; while they write a tile's results the next one's first steps arrive.
#include <algorithm>
#include <type_traits>

#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/gate.cuh"
#include "kernels/cuda/half_types.cuh"
#include "kernels/cuda/hopper.cuh"
#include "kernels/cuda/large_tiles.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/products.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/cuda/wgmma.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kWorkers = 256, kThreads = kWorkers + 128, kPair = 2;
constexpr int kTokens = 128, kTileRows = 256, kHalfRows = kTileRows / 2;
constexpr int kPanelBytes = 128;  // of a row of either factor in a step
constexpr int kTokenBytes = kTokens * kPanelBytes, kHalfBytes = kHalfRows * kPanelBytes, kStageBytes = kTokenBytes + 2 * kHalfBytes;
constexpr int kStages = 4, kBarrierBytes = 2 * kStages * int(sizeof(uint64_t));
constexpr int kShared = 1024 + kStages * kStageBytes + kBarrierBytes;  // to begin at a multiple of 1,024
constexpr int kWorkerRegisters = 232, kProducerRegisters = 40;

struct LargeProduct {
  Output out[2];               // the second: under a gate
  Gate gate;
  int tokens, steps;
  int pairs, row_tiles;        // of the whole product
  const float* token_scales;   // of e4m3
  CUtensorMap inputs, weights[2];
  __device__ bool gated() const { return gate != Gate::kNone; }
};

// The tiles of a cluster, one after another.
struct Tiles {
  const LargeProduct& a;
  int number;
  __device__ explicit Tiles(const LargeProduct& a) : a(a), number(int(blockIdx.x) / kPair) {}
  __device__ bool more() const { return number < a.pairs * a.row_tiles; }
  __device__ void next() { number += int(gridDim.x) / kPair; }
  // The first of this block's tokens, and of the tile's rows (of each weight under a gate).
  __device__ void place(int& token, int& row) const {
    const LargeTile tile = large_tile(number, a.pairs, a.row_tiles);
    token = (tile.pair * kPair + int(blockIdx.x) % kPair) * kTokens;
    row = tile.rows * (a.gated() ? kHalfRows : kTileRows);
  }
};

struct Ring {
  uint8_t* base;
  uint64_t *full, *empty;
  int stage = 0, parity = 0;
  __device__ void next() {
    if (++stage == kStages) stage = 0, parity ^= 1;
  }
  __device__ uint32_t tokens() const { return shared_address(base + stage * kStageBytes); }
  __device__ uint32_t rows() const { return tokens() + kTokenBytes; }
};

// By one thread. What a stage takes comes from both blocks' threads, and a stage is free when both blocks' workers are done with it.
__device__ inline void bring(const LargeProduct& a, Ring ring) {
  const int half = int(blockIdx.x) % kPair;
  const auto rows = [&](int row, int step) {
    barrier_expect(ring.full + ring.stage, kStageBytes);
    copy_tile_to((1 << kPair) - 1, ring.rows() + half * kHalfBytes, &a.weights[half], step * (kPanelBytes / 2), row + (a.gated() ? 0 : half * kHalfRows),
                 ring.full + ring.stage);
  };
  const auto tokens = [&](int token, int step) { copy_tile(ring.tokens(), &a.inputs, step * (kPanelBytes / 2), token, ring.full + ring.stage); };
  Tiles tiles(a);
  int token, row, step = min(kStages, a.steps);
  tiles.place(token, row);
  const Ring begin = ring;
  for (int i = 0; i < step; ++i, ring.next()) rows(row, i);  // weights, before the kernel ahead has ended
  const Ring behind = ring;
  ring = begin;
  wait_for_previous();
  for (int i = 0; i < step; ++i, ring.next()) tokens(token, i);
  ring = behind;
  ring.parity ^= 1;  // of what must be free: the phase before
  for (; tiles.more(); tiles.next(), step = 0) {
    tiles.place(token, row);
    for (; step < a.steps; ++step, ring.next()) {
      barrier_wait(ring.empty + ring.stage, ring.parity);
      rows(row, step);
      tokens(token, step);
    }
  }
}

// A thread's sums become results: number 4 g + e is of its first token (e < 2) or the one eight behind it, and of a pair of neighbours in eight rows.
// What the rows need is read for all, and of the last one in place of those past the end: a check a group makes for more code than there is work.
template <class E>
__device__ inline void finish(const LargeProduct& a, int token, int row, float (&sums)[128]) {
  const auto each_pair = [&](const auto& fn) {
#pragma unroll
    for (int g = 0; g < kTileRows / 8; ++g) {
      const bool is_second = a.gated() && g >= kHalfRows / 8;
      fn(a.out[is_second], min(row + 8 * (is_second ? g - kHalfRows / 8 : g), a.out[0].rows - 2), 4 * g);
    }
  };
  if constexpr (std::is_same_v<E, __nv_fp8_e4m3>) {
    float scales[2];
#pragma unroll
    for (int t = 0; t < 2; ++t) scales[t] = token + 8 * t < a.tokens ? __ldcg(a.token_scales + token + 8 * t) : 0.0f;
    each_pair([&](const Output& o, int n, int at) {
      const float first = o.scales[n], second = o.scales[n + 1];
      sums[at] *= scales[0] * first, sums[at + 1] *= scales[0] * second, sums[at + 2] *= scales[1] * first, sums[at + 3] *= scales[1] * second;
    });
  }
  if (!a.out[0].bias && !a.out[1].bias) return;
  each_pair([&](const Output& o, int n, int at) {
    if (!o.bias) return;
    sums[at] += o.bias[n], sums[at + 1] += o.bias[n + 1], sums[at + 2] += o.bias[n], sums[at + 3] += o.bias[n + 1];
  });
}
// Of group g of one of its tokens.
template <bool is_gated>
__device__ inline float2 result(Gate gate, const float (&sums)[128], int second, int g) {
  const float2 v = make_float2(sums[4 * g + 2 * second], sums[4 * g + 2 * second + 1]);
  if constexpr (!is_gated) return v;
  const int up = 4 * (g + kHalfRows / 8) + 2 * second;
  return make_float2(gated(gate, v.x, sums[up]), gated(gate, v.y, sums[up + 1]));
}

// Four lanes have a token's results of four groups, each a pair of every group; then each has one group's.
[[maybe_unused]] __device__ inline void exchange(uint32_t (&pairs)[4]) {
  const int lane = int(threadIdx.x) % 4;
#pragma unroll
  for (int bit = 1; bit <= 2; bit *= 2)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & bit) continue;
      const bool upper = lane & bit;
      const uint32_t low = pairs[i], high = pairs[i + bit], got = __shfl_xor_sync(0xFFFFFFFFu, upper ? low : high, bit);
      pairs[i] = upper ? got : low, pairs[i + bit] = upper ? high : got;
    }
}

template <class Y, bool is_gated>
__device__ inline void write(const LargeProduct& a, int first_token, int row, const float (&sums)[128]) {
  constexpr int kGroups = (is_gated ? kHalfRows : kTileRows) / 8;
  const Output& o = a.out[0];
  const int lane = int(threadIdx.x) % 4;
#pragma unroll
  for (int second = 0; second < 2; ++second) {
    const int token = first_token + 8 * second;
    const bool there = token < a.tokens;
    Y* y = reinterpret_cast<Y*>(o.y) + size_t(token) * o.y_stride + row;
    if constexpr (sizeof(Y) == 4) {
      constexpr int kAtOnce = 8;
      y += 2 * lane;
      const auto writes = [&](int g) { return there && row + 8 * g < o.rows; };
#pragma unroll
      for (int g = 0; g < kGroups; g += kAtOnce) {
        float2 before[kAtOnce];
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) before[i] = o.accumulate && writes(g + i) ? __ldcg(reinterpret_cast<const float2*>(y + 8 * (g + i))) : make_float2(0, 0);
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const float2 v = result<is_gated>(a.gate, sums, second, g + i);
          if (writes(g + i)) *reinterpret_cast<float2*>(y + 8 * (g + i)) = make_float2(before[i].x + v.x, before[i].y + v.y);
        }
      }
    } else {
#pragma unroll
      for (int g = 0; g < kGroups; g += 4) {
        uint32_t pairs[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float2 v = result<is_gated>(a.gate, sums, second, g + i);
          pairs[i] = pair_of<Y>(v.x, v.y);
        }
        exchange(pairs);
        const int column = 8 * (g + lane);
        if (there && row + column < o.rows) *reinterpret_cast<uint4*>(y + column) = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
      }
    }
  }
}

template <class E>
__device__ inline void compute(const LargeProduct& a, Ring ring) {
  const int lane = int(threadIdx.x) % 32;
  const auto release = [&](int stage) {
    __syncwarp();
    if (lane < kPair) barrier_arrive_at(ring.empty + stage, lane);
  };
  wait_for_previous();
  for (Tiles tiles(a); tiles.more(); tiles.next()) {
    float sums[128];
    int before = -1;  // the stage that products still read
    for (int step = 0; step < a.steps; ++step, ring.next()) {
      barrier_wait(ring.full + ring.stage, ring.parity);
      products_begin();
#pragma unroll
      for (int k = 0; k < 4; ++k)
        multiply<E, 256>(sums, matrix_at(ring.tokens() + int(threadIdx.x) / 128 * (kTokenBytes / 2) + 32 * k, 0), matrix_at(ring.rows() + 32 * k, 0), step || k);
      products_commit();
      products_wait<1>();
      if (before >= 0) release(before);
      before = ring.stage;
    }
    products_wait<0>();
    sums_are_there(sums);
    release(before);
    int token, row;
    tiles.place(token, row);
    token += int(threadIdx.x) / 32 * 16 + lane / 4;
    finish<E>(a, token, row + lane % 4 * 2, sums);
    const auto to = [&]<class Y>() {
      if (a.gated()) write<Y, true>(a, token, row, sums);
      else write<Y, false>(a, token, row, sums);
    };
    switch (a.out[0].y_type) {
      case DType::kF32: to.template operator()<float>(); break;
      case DType::kF16: to.template operator()<__half>(); break;
      case DType::kBF16: to.template operator()<__nv_bfloat16>(); break;
    }
  }
}

template <class E>
__global__ void __launch_bounds__(kThreads, 1) large_kernel(const __grid_constant__ LargeProduct a) {
  if constexpr (kHopper) {
    let_next_begin();
    uint8_t* const raw = dynamic_shared();
    uint8_t* const base = raw + (1024 - shared_address(raw) % 1024) % 1024;
    uint64_t* const barriers = reinterpret_cast<uint64_t*>(base + kStages * kStageBytes);
    const Ring ring{base, barriers, barriers + kStages};
    if (threadIdx.x == 0) {
      for (int i = 0; i < kStages; ++i) barrier_init(ring.full + i, 1), barrier_init(ring.empty + i, kPair * kWorkers / 32);
      publish_barriers();
      publish_shared();
    }
    __syncthreads();
    cluster_arrive_relaxed();
    cluster_wait();
    if (threadIdx.x >= kWorkers) {
      registers_give<kProducerRegisters>();
      if (threadIdx.x == kWorkers) bring(a, ring);
      __syncwarp();
    } else {
      registers_take<kWorkerRegisters>();
      compute<E>(a, ring);
    }
    // Until then the other block copies to this one's memory and arrives at its barriers.
    cluster_arrive();
    cluster_wait();
  }
}

// How many clusters a device holds at once.
template <class E>
int clusters_of(const CudaContext* c) {
  static const int most = [] {
    cudaFuncSetAttribute(large_kernel<E>, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared);
    cudaLaunchAttribute size{};
    size.id = cudaLaunchAttributeClusterDimension;
    size.val.clusterDim = {kPair, 1, 1};
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(kPair), config.blockDim = dim3(kThreads), config.dynamicSmemBytes = kShared;
    config.attrs = &size, config.numAttrs = 1;
    int n = 0;
    if (cudaOccupancyMaxActiveClusters(&n, large_kernel<E>, &config) != cudaSuccess) n = 0, cudaGetLastError();
    return n;
  }();
  return std::max(1, std::min(most, c->processors / kPair));
}

// x: rows of E's bytes, `stride` apart, at multiples of 16.
template <class E>
void launch(CudaContext* c, const Product& p, const void* x, int stride, const float* token_scales) {
  constexpr int kElement = sizeof(E), kColumns = kPanelBytes / kElement;
  const bool is_gated = p.gate != Gate::kNone;
  note(c, cudaFuncSetAttribute(large_kernel<E>, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared));
  for (int i = 0; i < (is_gated ? 1 : p.outputs); ++i) {
    const int rows = p.out[i].rows, tile = is_gated ? kHalfRows : kTileRows;
    LargeProduct a{{p.out[i], p.out[is_gated ? 1 : i]}, p.gate, p.tokens, (p.cols + kColumns - 1) / kColumns};
    a.pairs = (p.tokens + kPair * kTokens - 1) / (kPair * kTokens), a.row_tiles = (rows + tile - 1) / tile, a.token_scales = token_scales;
    // Maps are of pairs of bytes, whatever they are.
    note(c, make_rows_map(&a.inputs, x, size_t(p.tokens), p.cols * kElement / 2, stride * kElement / 2, kTokens));
    for (int w = 0; w < 2; ++w) note(c, make_rows_map(&a.weights[w], a.out[w].weight, size_t(rows), p.cols * kElement / 2, int(a.out[w].row_bytes / 2), kHalfRows));
    if (c->error != cudaSuccess) return;
    const int clusters = std::min(a.pairs * a.row_tiles, clusters_of<E>(c));
    note(c, launch_early(Queue(c, p.tokens).of_clusters(kPair), dim3(unsigned(clusters * kPair)), kThreads, kShared, large_kernel<E>, a));
  }
}

}  // namespace

bool large_takes(const CudaContext* c, WeightType type, const Product& p) noexcept {
  if (!dense_takes(c, type, p)) return false;
  const auto takes = [&](const Output& o) {
    const int size = int(16 / dtype_bytes(o.y_type));
    return o.rows % 8 == 0 && (!o.accumulate || o.y_type == DType::kF32) && o.y_stride % size == 0 &&
           reinterpret_cast<uintptr_t>(o.y) % 16 == 0;
  };
  return std::all_of(p.out, p.out + p.outputs, takes);
}

void multiply_large(CudaContext* c, WeightType type, const Product& p, const LinearArgs& a) noexcept {
  if (is_fp8(type)) {
    const Fp8Inputs in = prepare_fp8(c, a, p.cols);
    return launch<__nv_fp8_e4m3>(c, p, in.codes, p.cols, in.scales);
  }
  const Halves in = half_inputs(c, type, a, p.cols);
  if (type == WeightType::kF16) launch<__half>(c, p, in.x, in.stride, nullptr);
  else launch<__nv_bfloat16>(c, p, in.x, in.stride, nullptr);
}

}  // namespace sluice::kernels::cuda
