// kernels/cuda/launch.cuh on the emulator: a launch runs to its end. Its seed, and what the kernel ahead does in the meantime, are the test's.
#pragma once
#include <cuda_runtime_api.h>

#include <cstdio>
#include <exception>

#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/hopper.cuh"

namespace sluice::kernels::cuda {

inline uint64_t launch_seed = 1;
inline std::function<void()> ahead_ends;

inline void let_next_begin() {}
inline void wait_for_previous() { emulator::wait_for_ahead(); }

struct Queue {
  int cluster = 1;
  explicit Queue(const CudaContext*, int) {}
  Queue of_clusters(int blocks) const {
    Queue q = *this;
    q.cluster = blocks;
    return q;
  }
};

template <class... Params, class... Args>
cudaError_t launch_early(Queue queue, dim3 grid, int threads, size_t shared, void (*kernel)(Params...), const Args&... args) {
  try {
    emulator::run({int(grid.x), queue.cluster, threads, shared, launch_seed, ahead_ends}, [&] { kernel(args...); });
  } catch (const std::exception& e) {
    std::fprintf(stderr, "seed %llu: %s\n", static_cast<unsigned long long>(launch_seed), e.what());
    return cudaErrorUnknown;
  }
  return cudaSuccess;
}

}  // namespace sluice::kernels::cuda
