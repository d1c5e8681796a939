// Conversion of weights from the file's layout to the tiles of layout.h. Pure; any thread; runs at load.
#pragma once
#include <cstddef>

#include "tensor/dtype.h"

namespace sluice::kernels::cpu {

size_t packed_bytes(WeightType type, int rows, int cols) noexcept;
void pack(WeightType type, int rows, int cols, const void* src, void* dst, int row_begin, int row_end) noexcept;

}  // namespace sluice::kernels::cpu
