// What kernels under test call of the rest of their backend.
#include "kernels/cuda/products.h"
#include "kernels/cuda/tensor_map.h"

namespace sluice::kernels::cuda {

cudaError_t make_rows_map(CUtensorMap* map, const void* matrix, size_t rows, int cols, int stride, int box_rows) noexcept {
  *map = {static_cast<const uint8_t*>(matrix), rows, cols, stride, box_rows};
  return cudaSuccess;
}
// Prepared inputs are the test's.
Halves half_inputs(CudaContext*, WeightType, const LinearArgs& a, int) noexcept { return {a.x.data, a.x_stride}; }
bool fp8_rows_take(int) noexcept { return true; }
Fp8Inputs prepare_fp8(CudaContext* c, const LinearArgs& a, int) noexcept { return {static_cast<const uint8_t*>(a.x.data), c->parts}; }

}  // namespace sluice::kernels::cuda
