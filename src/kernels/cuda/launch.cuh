// Launches that may begin while the kernel before them on the stream still runs (programmatic dependent launch).
// A kernel launched so calls let_next_begin() as early as it likes and wait_for_previous() before it touches anything that
// an earlier kernel reads or writes; weights may be read before. Every thread block must call wait_for_previous(), or the
// kernel's end would not mean the end of all before it. Activations are read past the first-level cache (__ldcg), which
// may hold lines from before the wait.
#pragma once
#include <cuda_runtime.h>

namespace sluice::kernels::cuda {

__device__ inline void let_next_begin() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
__device__ inline void wait_for_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

template <class... Params, class... Args>
inline cudaError_t launch_early(cudaStream_t stream, dim3 grid, int threads, size_t shared, void (*kernel)(Params...), const Args&... args) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(unsigned(threads));
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, Params(args)...);
}

}  // namespace sluice::kernels::cuda
