// Descriptors of matrices in device memory, for the unit that copies boxes of them to shared memory by itself (cp.async.bulk.tensor).
#pragma once
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace sluice::kernels::cuda {

// [rows, cols] of 16-bit elements, rows one behind the other (a multiple of 16 bytes each, from a multiple of 16 on); rows and box_rows are
// multiples of eight. A box comes to shared memory swizzled as wgmma.cuh has it: eight rows of 64 elements, the same rows of the next 64 where
// cols is a multiple of 64, then the next eight rows. Where it is not, a box is 64 columns wide, and what lies outside of the matrix is zeros.
cudaError_t make_tensor_map(CUtensorMap* map, const void* matrix, size_t rows, int cols, int box_rows) noexcept;

// [rows, cols] of 16-bit elements, rows `stride` elements apart (a multiple of eight, as cols are). A box is 64 columns of box_rows rows (at most 256), swizzled
// alike; what lies outside of the matrix is zeros.
cudaError_t make_rows_map(CUtensorMap* map, const void* matrix, size_t rows, int cols, int stride, int box_rows) noexcept;

}  // namespace sluice::kernels::cuda
