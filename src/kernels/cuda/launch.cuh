// Launches that may begin while the kernel before them on the stream still runs (programmatic dependent launch).
// A kernel launched so calls let_next_begin() as early as it likes and wait_for_previous() before it touches anything that
// an earlier kernel reads or writes; weights may be read before. Every thread block must call wait_for_previous(), or the
// kernel's end would not mean the end of all before it. Activations are read past the first-level cache (__ldcg), which
// may hold lines from before the wait. Below 9.0 there is no such launch: kernels follow one another as the stream has them, and both calls
// are nothing.
#pragma once
#include <cuda_runtime.h>

#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/pipeline.cuh"

namespace sluice::kernels::cuda {

// Where to launch. beside: with all of a processor's memory for sharing, as products have it. A processor whose memory is divided
// otherwise takes no other kernel's blocks until its own have ended, and a step of few tokens lives by the next kernel's loads. With many, attention
// wants the first-level cache, through which its loads go: without it a step of 128 tokens takes a tenth longer.
struct Queue {
  cudaStream_t stream;
  bool early, beside = false;
  int cluster = 1;  // blocks of one
  Queue(const CudaContext* c) : stream(c->stream), early(c->can.hopper) {}
  Queue(const CudaContext* c, int num_tokens) : stream(c->stream), early(c->can.hopper), beside(early && num_tokens <= kFewBeside) {}
  static constexpr int kFewBeside = 8;
  Queue of_clusters(int blocks) const {
    Queue q = *this;
    q.cluster = blocks;
    return q;
  }
};

template <class... Params, class... Args>
inline cudaError_t launch_early(Queue queue, dim3 grid, int threads, size_t shared, void (*kernel)(Params...), const Args&... args) {
  cudaLaunchAttribute attributes[3]{};
  int count = 0;
  if (queue.early) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (queue.beside) {
    attributes[count].id = cudaLaunchAttributePreferredSharedMemoryCarveout;
    attributes[count++].val.sharedMemCarveout = cudaSharedmemCarveoutMaxShared;
  }
  if (queue.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {unsigned(queue.cluster), 1, 1};
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(unsigned(threads));
  config.dynamicSmemBytes = shared;
  config.stream = queue.stream;
  config.attrs = attributes;
  config.numAttrs = unsigned(count);
  return cudaLaunchKernelEx(&config, kernel, Params(args)...);
}

// A launch that begins where the stream has it. Its error is the runtime's last one.
template <class... Params, class... Args>
inline void launch(const CudaContext* c, dim3 grid, int threads, void (*kernel)(Params...), const Args&... args) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(unsigned(threads));
  config.stream = c->stream;
  cudaLaunchKernelEx(&config, kernel, Params(args)...);
}

}  // namespace sluice::kernels::cuda
