// The scales in rows of FP8 blocks (quant/side_blocks.h), for kernels that keep them apart from the codes. Pure; any thread.
#pragma once
#include <cstdint>
#include <cstring>

#include "tensor/dtype.h"

namespace sluice::quant {

// rows: num_rows of cols elements in the layout of `type`; every scale_cols of them, whole blocks, share a scale. out: [num_rows, cols / scale_cols].
inline void fp8_scales(WeightType type, const uint8_t* rows, int64_t num_rows, int64_t cols, int64_t scale_cols, float* out) {
  const int64_t unit = side_unit(type), step = scale_cols / unit * (unit + 4);
  for (int64_t i = 0; i < num_rows * (cols / scale_cols); ++i) std::memcpy(out + i, rows + i * step, 4);
}

}  // namespace sluice::quant
