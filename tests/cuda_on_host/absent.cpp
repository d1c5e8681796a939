// What only 9.0 has, and no device here asks for.
#include "kernels/cuda/attention.h"
#include "kernels/cuda/tensor_map.h"

namespace sluice::kernels::cuda {

cudaError_t make_tensor_map(CUtensorMap*, const void*, size_t, int, int) noexcept { return cudaErrorNotSupported; }
cudaError_t make_rows_map(CUtensorMap*, const void*, size_t, int, int, int) noexcept { return cudaErrorNotSupported; }
void attend_many(CudaContext* c, const AttentionArgs&, const Prompts&) noexcept { note(c, cudaErrorNotSupported); }

}  // namespace sluice::kernels::cuda
