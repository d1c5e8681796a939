#include "kernels/cuda/tensor_map.h"

#include <cudaTypedefs.h>

namespace sluice::kernels::cuda {
namespace {

// The driver's function, which the runtime library finds: nothing is linked against the driver.
PFN_cuTensorMapEncodeTiled_v12000 encoder() {
  static const auto found = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result{};
    const cudaError_t e = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &result);
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(e == cudaSuccess && result == cudaDriverEntryPointSuccess ? function : nullptr);
  }();
  return found;
}

cudaError_t make(CUtensorMap* map, const void* matrix, int dimensions, const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box) {
  const auto encode = encoder();
  if (!encode) return cudaErrorNotSupported;
  const cuuint32_t steps[4] = {1, 1, 1, 1};
  const CUresult r = encode(map, CU_TENSOR_MAP_DATA_TYPE_UINT16, cuuint32_t(dimensions), const_cast<void*>(matrix), sizes, strides, box, steps,
                            CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                            CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return r == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace

cudaError_t make_tensor_map(CUtensorMap* map, const void* matrix, size_t rows, int cols, int box_rows) noexcept {
  const bool whole = cols % 64 == 0;
  const cuuint64_t panels = whole ? cuuint64_t(cols) / 64 : 1, row = cuuint64_t(cols) * 2;
  const cuuint64_t sizes[4] = {whole ? 64 : cuuint64_t(cols), 8, panels, cuuint64_t(rows) / 8}, strides[3] = {row, 128, 8 * row};
  const cuuint32_t box[4] = {64, 8, cuuint32_t(panels), cuuint32_t(box_rows) / 8};
  return make(map, matrix, 4, sizes, strides, box);
}

cudaError_t make_rows_map(CUtensorMap* map, const void* matrix, size_t rows, int cols, int stride, int box_rows) noexcept {
  const cuuint64_t sizes[2] = {cuuint64_t(cols), rows}, strides[1] = {cuuint64_t(stride) * 2};
  const cuuint32_t box[2] = {64, cuuint32_t(box_rows)};
  return make(map, matrix, 2, sizes, strides, box);
}

}  // namespace sluice::kernels::cuda
