// Products of few tokens: the weights' bytes are all that counts. A block's eight warps take one tile of output rows after another and share a tile's columns,
// a step each in turn. Every warp copies its own weights to a ring of its own in shared memory, F::kDepth steps ahead and across tiles, so
// that no warp waits for another but where a tile's sums are folded.
//
// F is a kind of weights, RowWeights (row_weights.cuh) or TiledWeights (tiled_weights.cuh):
//   kDepth, kSlotBytes        the ring: slots, and bytes of one of a warp
//   steps(cols)               of a tile's columns
//   Rows                      where a lane finds a tile's weights: enter(args, tile), copy(slot, step, policy)
//   Summing(slot)             a warp's sums: begin(args, inputs) before the tiles that read them; leave(args, tile, walk, fold) of each tile
//   Store(args, tile)         what a thread does once all warps have left theirs: finish(args, fold)
//   Fold                      the warps' sums side by side
//   Inputs, place(args, to)   the inputs in shared memory, once what was before has been done
#pragma once
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/products.h"
#include "kernels/cuda/prologue.cuh"
#include "kernels/cuda/tickets.cuh"

namespace sluice::kernels::cuda {

constexpr int kFewThreads = kPrologueThreads, kFewWarps = kFewThreads / 32;
__device__ inline int few_warp() { return int(threadIdx.x) / 32; }
// Bytes of a slot of all warps, and of the ring.
template <class F> constexpr int kRingStep = kFewWarps * F::kSlotBytes;
template <class F> constexpr int kRingBytes = F::kDepth * kRingStep<F>;
// What there is of a device's shared memory for inputs, `wanted` at most.
template <class F> size_t room_for_inputs(const CudaContext* c, size_t wanted) {
  constexpr size_t kOther = 1024;  // the queue, and what aligns
  return shared_left(c->can, kRingBytes<F> + 2 * sizeof(typename F::Fold) + kOther, wanted);
}
template <class F> __device__ inline uint8_t* ring_of_warp(uint8_t* ring) { return ring + few_warp() * F::kSlotBytes; }

// A walk's copies that have been asked for but for the newest kDepth - 1 are there.
template <class F> __device__ inline void ring_wait() { copies_wait<F::kDepth - 1>(); }

// How many tiles ahead of a tile's products its successors' copies begin: a warp has so many steps of a tile at least.
template <class F> __device__ inline int tiles_ahead(int cols) { return 1 + F::kDepth / max(1, F::steps(cols) / kFewWarps); }

// Goes through a warp's steps of the block's tiles in order.
template <class F>
struct Walk {
  const FewArgs& a;
  const Tiles& tiles;
  int number = 0, index, step;
  const uint64_t once = policy_once();
  typename F::Rows rows;
  __device__ Walk(const FewArgs& a, const Tiles& tiles) : a(a), tiles(tiles), index(tiles.at(0)) { enter(); }
  __device__ void enter() {
    step = few_warp();
    // Rows of few steps leave some warps none.
    if (index >= tiles.all() || step >= F::steps(a.p.cols)) return void(index = tiles.all());
    rows.enter(a, index);
  }
  // Starts copying the step that comes next, if there is one, and goes on. A group is committed in any case.
  __device__ void copy(uint32_t slot) {
    if (index < tiles.all()) {
      rows.copy(slot, step, once);
      if ((step += kFewWarps) >= F::steps(a.p.cols)) index = tiles.at(++number), enter();
    }
    copies_commit();
  }
};

// Copies what a warp multiplies first.
template <class F>
__device__ inline void fill_ring(uint8_t* ring_of_warp, Walk<F>& walk) {
#pragma unroll
  for (int i = 0; i < F::kDepth; ++i) walk.copy(shared_address(ring_of_warp + i * kRingStep<F>));
}

// All of the block's tiles.
template <class F>
__device__ inline void multiply_tiles_of_block(const FewArgs& a, Tiles& tiles, typename F::Summing& summing, Walk<F>& walk) {
  __shared__ typename F::Fold folds[2];
  int parity = 0, index = tiles.at(0);
  for (int number = 0; index < tiles.all(); index = tiles.at(++number), parity ^= 1) {
    int drawn = 0;
    if (threadIdx.x == 0) drawn = tiles.draw();
    const typename F::Store store(a, index);
    summing.leave(a, index, walk, folds[parity]);
    if (threadIdx.x == 0) tiles.put(number, drawn);
    __syncthreads();  // the other half of folds is read before the next of these
    store.finish(a, folds[parity]);
  }
}

}  // namespace sluice::kernels::cuda
