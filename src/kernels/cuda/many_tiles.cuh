// Products of dozens of tokens and more: at the memory's speed as long as the tensor cores keep up. A block is a producer warp, which copies steps of
// columns to a ring in shared memory, and two warpgroups of workers. A tile is two bands of 128 output rows, those of both weights under a gate, and a
// warpgroup has 64 rows of each. Where there are fewer tiles than processors, the blocks of a cluster share a tile's columns, and each adds up a part of
// the tile from all of their shared memories, in the order of the columns. Copies of weights begin before the kernels that this one depends on have ended.
//
// F is a kind of weights:
//   kPanels                   of 64 columns, that a step has
//   kScaled                   whether sums are yet to be multiplied by scales of rows and tokens
//   band_bytes()              of a step of a band
//   fetch(args, row, step, to, barrier)   by the producer's warp: starts the copies of a step of the tile whose first row this is
//   multiply(sums, weights, inputs, add)   by a warpgroup: sums = (add ? sums : 0) + a step's product, which is over on return
#pragma once
#include <algorithm>
#include <cstdint>

#include "kernels/cuda/cluster.cuh"
#include "kernels/cuda/gate.cuh"
#include "kernels/cuda/half_types.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/products.h"
#include "kernels/cuda/tensor_map.h"
#include "kernels/cuda/wgmma.cuh"

namespace sluice::kernels::cuda {

constexpr int kManyWorkers = 256, kManyThreads = kManyWorkers + 128, kBands = 2, kBandRows = 128, kMostShares = 8;
// Of a thread: producers leave theirs to the workers.
constexpr int kWorkerRegisters = 232, kProducerRegisters = 40;

struct ManyProduct {
  Output out[2];             // the second: under a gate
  Gate gate;
  int tokens, cols;
  int groups;                // of tokens: as many as a block takes at once
  int tiles, steps, shares;  // tiles: of rows times groups, a tile's groups side by side; steps: of a tile; shares: blocks of a cluster, one tile's
  CUtensorMap inputs;        // [tokens, cols]
  CUtensorMap weights[2];    // of out, where F copies by them
  const float* token_scales; // where F is scaled
};

template <class F, int tokens>
struct Stages {
  static constexpr int kPanel = tokens * 128, kInputs = F::kPanels * kPanel, kWeights = kBands * F::band_bytes();
  static constexpr int kBytes = (kInputs + kWeights + 1023) / 1024 * 1024;
  static constexpr int kStages = 214 * 1024 / kBytes;      // all of a processor's shared memory
  static constexpr int kShared = 1024 + kStages * kBytes + 2 * kStages * int(sizeof(uint64_t));  // to begin at a multiple of 1,024; barriers
  static_assert(kStages >= 3 && kStages * kBytes >= kBands * kBandRows * tokens * 4);  // the sums of a tile take the ring's place
};

// What a block does: its tiles one after another, and of each these steps.
template <int tokens>
struct BlockWork {
  const ManyProduct& a;
  int tile, stride, share, begin, end;
  __device__ explicit BlockWork(const ManyProduct& a) : a(a) {
    tile = int(blockIdx.x) / a.shares, stride = int(gridDim.x) / a.shares, share = int(blockIdx.x) % a.shares;
    begin = share * a.steps / a.shares, end = (share + 1) * a.steps / a.shares;
  }
  __device__ bool more() const { return tile < a.tiles; }
  __device__ void next() { tile += stride; }
  __device__ int row() const { return tile / a.groups * kBandRows * (a.gate == Gate::kNone ? kBands : 1); }
  __device__ int token() const { return tile % a.groups * tokens; }
};

template <class F, int tokens>
__device__ inline void bring(const ManyProduct& a, uint8_t* base, uint64_t* full, uint64_t* empty) {
  using S = Stages<F, tokens>;
  const int lane = threadIdx.x % 32;
  const auto weights = [&](int row, int step, int stage) {
    if (lane == 0) barrier_expect(full + stage, S::kInputs + S::kWeights);
    __syncwarp();
    F::fetch(a, row, step, base + stage * S::kBytes + S::kInputs, full + stage);
  };
  const auto inputs = [&](int token, int step, int stage) {
    if (lane < F::kPanels) copy_tile(shared_address(base + stage * S::kBytes + lane * S::kPanel), &a.inputs, (step * F::kPanels + lane) * 64, token, full + stage);
  };
  BlockWork<tokens> work(a);
  const int early = min(S::kStages, work.end - work.begin);  // of the first tile
  for (int i = 0; i < early; ++i) weights(work.row(), work.begin + i, i);
  wait_for_previous();
  for (int i = 0; i < early; ++i) inputs(work.token(), work.begin + i, i);
  int stage = early % S::kStages, parity = early == S::kStages ? 0 : 1;  // of what must be free: 1 is true of a stage that was not used
  for (int first = work.begin + early; work.more(); work.next(), first = work.begin) {
    const int row = work.row(), token = work.token();
    for (int step = first; step < work.end; ++step) {
      barrier_wait(empty + stage, parity);
      weights(row, step, stage);
      inputs(token, step, stage);
      if (++stage == S::kStages) stage = 0, parity ^= 1;
    }
  }
}

// A thread's results of a band: four of each group of 8 tokens, number k of rows lane / 4 + k / 2 * 8 of its warp's 16 and of tokens lane % 4 * 2 + k % 2 of the group.
// Code that runs once a tile takes as long as it takes to fetch it, so there is little for each.
template <class Y>
struct Writer {
  Y* y;
  int stride, left;  // tokens from the first on
  bool rows[2], accumulate;
  float bias[2] = {};
  __device__ Writer(const ManyProduct& a, int tile_row, int tile_token) {
    const Output& o = a.out[0];
    const int row = tile_row + int(threadIdx.x) / 32 * 16 + int(threadIdx.x) % 32 / 4, token = tile_token + int(threadIdx.x) % 4 * 2;
    y = reinterpret_cast<Y*>(o.y) + size_t(token) * o.y_stride + row;
    stride = o.y_stride, left = a.tokens - token, accumulate = o.accumulate;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      rows[r] = row + 8 * r < o.rows;
      if (o.bias && rows[r]) bias[r] = o.bias[row + 8 * r];
    }
  }
  // Group q's results are added to what is there, where that is wanted.
  __device__ void fetch(float (&before)[4], int q) const {
#pragma unroll
    for (int k = 0; k < 4; ++k) before[k] = accumulate && there(q, k) ? to_float(__ldcg(at(q, k))) : 0.0f;
  }
  __device__ void write(const float4& v, const float (&before)[4], int q) const {
    const float sums[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int k = 0; k < 4; ++k)
      if (there(q, k)) *at(q, k) = from_float<Y>(before[k] + bias[k / 2] + sums[k]);
  }

 private:
  __device__ Y* at(int q, int k) const { return y + size_t(8 * q + k % 2) * stride + k / 2 * 8; }
  __device__ bool there(int q, int k) const { return rows[k / 2] && 8 * q + k % 2 < left; }
};
// Group q's sums of one output, scaled where that is yet to be done.
template <class F>
__device__ inline float4 scaled(const ManyProduct& a, const Output& o, int tile_row, int tile_token, int q, float4 v) {
  if constexpr (F::kScaled) {
    const int row = min(tile_row + int(threadIdx.x) / 32 * 16 + int(threadIdx.x) % 32 / 4, o.rows - 1), token = min(tile_token + 8 * q + int(threadIdx.x) % 4 * 2, a.tokens - 1);
    const float first = o.scales[row], second = o.scales[min(row + 8, o.rows - 1)];
    const float one = __ldcg(a.token_scales + token), other = __ldcg(a.token_scales + min(token + 1, a.tokens - 1));
    v = make_float4(v.x * one * first, v.y * other * first, v.z * one * second, v.w * other * second);
  }
  return v;
}
template <class Fn>
__device__ inline void with_result_type(const ManyProduct& a, Fn fn) {
  switch (a.out[0].y_type) {
    case DType::kF32: return fn.template operator()<float>();
    case DType::kF16: return fn.template operator()<__half>();
    case DType::kBF16: return fn.template operator()<__nv_bfloat16>();
  }
}
__device__ inline float4 gated(Gate gate, const float4& v, const float4& up) {
  return make_float4(gated(gate, v.x, up.x), gated(gate, v.y, up.y), gated(gate, v.z, up.z), gated(gate, v.w, up.w));
}

// The cluster's sums of a tile, added up: each block does so for some of its groups of tokens. Only workers meet: all other threads end. A loop: code that runs but once takes longest to be read.
template <class F, int tokens>
__device__ inline void fold_cluster(const ManyProduct& a, int tile_row, int tile_token, int share, const float (&sums)[kBands][tokens / 2], uint8_t* base) {
  constexpr int kGroups = tokens / 8;
  float4* mine = reinterpret_cast<float4*>(base) + threadIdx.x;
  meet<kManyWorkers>();  // all are done with the ring
#pragma unroll
  for (int i = 0; i < kBands; ++i)
#pragma unroll
    for (int q = 0; q < kGroups; ++q) mine[(i * kGroups + q) * kManyWorkers] = make_float4(sums[i][4 * q], sums[i][4 * q + 1], sums[i][4 * q + 2], sums[i][4 * q + 3]);
  cluster_arrive();
  const auto total = [&](int i, int q) {
    const uint32_t at = shared_address(mine + (i * kGroups + q) * kManyWorkers);
    float4 parts[kMostShares], sum{};
#pragma unroll
    for (int r = 0; r < kMostShares; ++r)
      if (r < a.shares) parts[r] = read_of_block(at, r);
#pragma unroll
    for (int r = 0; r < kMostShares; ++r)
      if (r < a.shares) sum.x += parts[r].x, sum.y += parts[r].y, sum.z += parts[r].z, sum.w += parts[r].w;
    return sum;
  };
  const bool is_gated = a.gate != Gate::kNone;
  const int groups = min(kGroups, (a.tokens - tile_token + 7) / 8), all = groups * (is_gated ? 1 : kBands);
  cluster_wait();
  with_result_type(a, [&]<class Y>() {
#pragma unroll 1
    for (int n = share; n < all; n += a.shares) {
      const int band = n / groups, q = n % groups;
      const Writer<Y> writer(a, tile_row + band * kBandRows, tile_token);
      float before[4];
      writer.fetch(before, q);
      const auto result = [&](int i) { return scaled<F>(a, a.out[is_gated && i], tile_row + (is_gated ? 0 : band * kBandRows), tile_token, q, total(is_gated ? i : band, q)); };
      writer.write(is_gated ? gated(a.gate, result(0), result(1)) : result(0), before, q);
    }
  });
  cluster_arrive();
  cluster_wait();  // others may still be reading here
}

template <class F, int tokens>
__device__ inline void compute(const ManyProduct& a, uint8_t* base, uint64_t* full, uint64_t* empty) {
  using S = Stages<F, tokens>;
  int stage = 0, parity = 0;
  wait_for_previous();
  for (BlockWork<tokens> work(a); work.more(); work.next()) {
    float sums[kBands][tokens / 2];
    // A step's products are waited for: with few stages a ring cannot spare one that is done with, and the other warpgroup's go on.
    for (int step = work.begin; step < work.end; ++step) {
      barrier_wait(full + stage, parity);
      uint8_t* here = base + stage * S::kBytes;
      F::template multiply<tokens>(sums, here + S::kInputs, shared_address(here), step != work.begin);
      __syncwarp();
      if (threadIdx.x % 32 == 0) barrier_arrive(empty + stage);
      if (++stage == S::kStages) stage = 0, parity ^= 1;
    }
    const int row = work.row(), token = work.token();
    if (a.shares > 1) return fold_cluster<F, tokens>(a, row, token, work.share, sums, base);  // a cluster has one tile
    with_result_type(a, [&]<class Y>() {
      constexpr int kAtOnce = F::kScaled ? 2 : 4;
      const bool is_gated = a.gate != Gate::kNone;
#pragma unroll
      for (int i = 0; i < kBands; ++i) {
        if (is_gated && i > 0) break;
        const Writer<Y> writer(a, row + i * kBandRows, token);
#pragma unroll
        for (int q = 0; q < tokens / 8; q += kAtOnce) {
          float before[kAtOnce][4];
#pragma unroll
          for (int n = 0; n < kAtOnce; ++n) writer.fetch(before[n], q + n);
#pragma unroll
          for (int n = 0; n < kAtOnce; ++n) {
            const auto of = [&](int band) {
              const float4 v = make_float4(sums[band][4 * (q + n)], sums[band][4 * (q + n) + 1], sums[band][4 * (q + n) + 2], sums[band][4 * (q + n) + 3]);
              return scaled<F>(a, a.out[is_gated && band], row + (is_gated ? 0 : band * kBandRows), token, q + n, v);
            };
            writer.write(i == 0 && is_gated ? gated(a.gate, of(i), of(1)) : of(i), before[n], q + n);
          }
        }
      }
    });
  }
}

template <class F, int tokens>
__global__ void __launch_bounds__(kManyThreads, 1) many_kernel(const __grid_constant__ ManyProduct a) {
  if constexpr (kHopper) {
    using S = Stages<F, tokens>;
    let_next_begin();
    uint8_t* const raw = dynamic_shared();
    uint8_t* const base = raw + (1024 - shared_address(raw) % 1024) % 1024;
    uint64_t *const full = reinterpret_cast<uint64_t*>(base + S::kStages * S::kBytes), *const empty = full + S::kStages;
    if (threadIdx.x == 0) {
      for (int i = 0; i < S::kStages; ++i) barrier_init(full + i, 1), barrier_init(empty + i, kManyWorkers / 32);
      publish_shared();
    }
    __syncthreads();
    if (threadIdx.x >= kManyWorkers) {
      registers_give<kProducerRegisters>();
      if (threadIdx.x < kManyWorkers + 32) bring<F, tokens>(a, base, full, empty);
    } else {
      registers_take<kWorkerRegisters>();
      compute<F, tokens>(a, base, full, empty);
    }
  }
}

// How many clusters of each size a device holds at once, as it says, and so into how many shares a tile goes.
template <class F, int tokens>
struct ManyKernel {
  using S = Stages<F, tokens>;
  static constexpr auto kKernel = many_kernel<F, tokens>;
  int clusters[kMostShares + 1] = {};
  explicit ManyKernel(const CudaContext* c) {
    cudaFuncSetAttribute(kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, S::kShared);
    clusters[1] = c->processors;
    for (int n = 2; n <= kMostShares; ++n) {
      cudaLaunchAttribute size{};
      size.id = cudaLaunchAttributeClusterDimension;
      size.val.clusterDim = {unsigned(n), 1, 1};
      cudaLaunchConfig_t config{};
      config.gridDim = dim3(unsigned(n)), config.blockDim = dim3(kManyThreads), config.dynamicSmemBytes = S::kShared;
      config.attrs = &size, config.numAttrs = 1;
      if (cudaOccupancyMaxActiveClusters(&clusters[n], kKernel, &config) != cudaSuccess) clusters[n] = 0, cudaGetLastError();
      clusters[n] = std::min(clusters[n], c->processors / n);  // one block a processor
    }
  }
  static const ManyKernel& of(const CudaContext* c) {
    static const ManyKernel k(c);
    return k;
  }
  static int tiles(const ManyProduct& a) {
    const int rows = kBandRows * (a.gate == Gate::kNone ? kBands : 1);
    return (a.out[0].rows + rows - 1) / rows * ((a.tokens + tokens - 1) / tokens);
  }
  static int steps(const ManyProduct& a) { return (a.cols + 64 * F::kPanels - 1) / (64 * F::kPanels); }
  // The most blocks that find room at once.
  int shares(const ManyProduct& a) const {
    constexpr int kLeastSteps = 2;  // of a share
    int best = 1;
    for (int n = 2; n <= std::min(kMostShares, steps(a) / kLeastSteps); ++n)
      if (tiles(a) <= clusters[n]) best = n;
    return best;
  }
};

// The rest of the arguments, and the launch. inputs: rows of halves at multiples of 16 bytes.
template <class F, int tokens>
void launch_many(CudaContext* c, ManyProduct& a, const void* inputs, int stride) {
  using K = ManyKernel<F, tokens>;
  note(c, cudaFuncSetAttribute(K::kKernel, cudaFuncAttributeMaxDynamicSharedMemorySize, K::S::kShared));
  note(c, make_rows_map(&a.inputs, inputs, size_t(a.tokens), a.cols, stride, tokens));
  if (c->error != cudaSuccess) return;
  a.groups = (a.tokens + tokens - 1) / tokens;
  a.tiles = K::tiles(a), a.steps = K::steps(a), a.shares = K::of(c).shares(a);
  const int blocks = std::min(a.tiles, K::of(c).clusters[a.shares]) * a.shares;
  note(c, launch_early(Queue(c, a.tokens).of_clusters(a.shares), dim3(unsigned(blocks)), kManyThreads, K::S::kShared, K::kKernel, a));
}

}  // namespace sluice::kernels::cuda
