// Which tiles a block of a product takes. The first few are dealt out, the rest are drawn as blocks get to them: where two blocks
// of a kernel share a processor - the kernel before it left no other room when it began - each is slower, and with equal shares
// all would wait for those two. Results do not depend on who computes them.
#pragma once

namespace sluice::kernels::cuda {

// tickets: how many were drawn, and blocks that are done; zero between the launches that use this pair (cuda_context.h).
// A block's tiles in order: number n is known to all its threads from `ahead` tiles before it on. All threads pass one barrier
// a tile, between draw's result being put and the next tile.
class Tiles {
 public:
  static constexpr int kQueue = 8;
  // all: of the kernel. ahead: how many tiles before a tile is computed its number must be known, at most kQueue - 2.
  __device__ Tiles(int* queue, int* tickets, int all, int ahead)
      : queue_(queue), tickets_(all > (ahead + 1) * int(gridDim.x) ? tickets : nullptr), all_(all), ahead_(ahead) {}
  __device__ int all() const { return all_; }
  __device__ int at(int n) const { return n <= ahead_ ? int(blockIdx.x) + n * int(gridDim.x) : queue_[n % kQueue]; }
  // By one thread at the beginning of tile n: draws the tile that is `ahead` and one more behind it.
  __device__ int draw() const { return tickets_ ? (ahead_ + 1) * int(gridDim.x) + atomicAdd(tickets_, 1) : all_; }
  // By that thread, before the barrier of tile n.
  __device__ void put(int n, int drawn) { queue_[(n + ahead_ + 1) % kQueue] = drawn; }
  // By one thread at the end.
  __device__ void leave() const {
    if (tickets_ && atomicAdd(tickets_ + 1, 1) == int(gridDim.x) - 1) tickets_[0] = 0, tickets_[1] = 0;
  }

 private:
  int* queue_;
  int* tickets_;  // null where all are dealt out
  int all_, ahead_;
};

}  // namespace sluice::kernels::cuda
