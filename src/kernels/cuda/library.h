// Products of many tokens by NVIDIA's cublasLt, which is opened at run time: nothing links against it, and a machine without
// it computes the same products with this backend's own kernels, more slowly. One object a context; calls queue on a stream.
#pragma once
#include <cuda_runtime_api.h>

#include <memory>

#include "tensor/dtype.h"

namespace sluice::kernels::cuda {

struct Output;

class Library {
 public:
  static constexpr size_t kWorkspaceBytes = size_t{32} << 20;

  // nullptr: the library, its workspace or its handle is not to be had on the current device.
  static std::unique_ptr<Library> open();
  ~Library();
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  // out = x * weight^T, with out's bias and accumulation. type: f16 or bf16, of x [tokens, cols] and of the weight; out's is
  // float32 or the same. How a
  // shape is computed is chosen at its first use (some 100 us of the host's time) and remembered. Nothing is allocated on the
  // device, so calls can be captured in a graph.
  cudaError_t multiply(cudaStream_t stream, WeightType type, const void* x, int x_stride, int tokens, int cols, const Output& out) noexcept;

  // The same of codes: x [tokens, cols] and the weight in e4m3. token_scales: of x's rows, with out's for the weight's; null: sums of codes
  // as they are. out's bias is left aside.
  cudaError_t multiply_codes(cudaStream_t stream, const uint8_t* x, const float* token_scales, int tokens, int cols, const Output& out) noexcept;

 private:
  struct State;
  struct Codes;
  cudaError_t multiply(cudaStream_t stream, WeightType type, const void* x, int x_stride, int tokens, int cols, const Output& out, const Codes* codes) noexcept;
  explicit Library(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace sluice::kernels::cuda
