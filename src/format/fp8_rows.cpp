#include <algorithm>
#include <cstring>
#include <limits>

#include "base/fp8.h"
#include "format/hf_packing.h"
#include "format/shown.h"

namespace sluice::format {

Result<TensorEntry> fp8_matrix(const StTensor& weight, const StTensor& scale, int64_t block_rows, int64_t block_cols) {
  if (weight.dtype != StDtype::kF8E4M3 || weight.shape.size() != 2 || weight.elements() < 1) return wrong_shape(weight, "F8_E4M3 of 2 dimensions");
  const int64_t rows = weight.shape[0], cols = weight.shape[1];
  if (!is_float(scale)) return wrong_shape(scale, "floats");
  // Rows and columns that a scale covers, by its shape.
  if (scale.elements() == 1) {
    block_rows = rows;
    block_cols = cols;
  } else if (has_shape(scale, {rows}) || has_shape(scale, {rows, 1})) {
    block_rows = 1;
    block_cols = cols;
  } else if (block_rows < 1 || block_cols < 1 || !has_shape(scale, {(rows + block_rows - 1) / block_rows, (cols + block_cols - 1) / block_cols})) {
    return wrong_shape(scale, "one scale, one a row, or one a block of " + std::to_string(block_rows) + " x " + std::to_string(block_cols));
  }
  const int64_t grid = (cols + block_cols - 1) / block_cols;
  int unit = 0;
  for (const int u : {128, 64, 32})
    if (unit == 0 && cols % u == 0 && (grid == 1 || block_cols % u == 0)) unit = u;
  if (unit == 0) return Error{ErrorCode::kUnsupported, shown(weight.name) + ": " + std::to_string(cols) + " inputs in blocks of " + std::to_string(block_cols) + " are no multiples of 32", {}};
  TensorEntry t;
  t.weight_format = quant::find_format(unit == 128 ? WeightType::kFp8_128 : unit == 64 ? WeightType::kFp8_64 : WeightType::kFp8_32);
  t.type_id = uint32_t(t.weight_format->type);
  t.dims = {cols, rows};
  t.scale_cols = grid == 1 ? cols : 0;
  t.made_from_bytes = weight.bytes.size() + scale.bytes.size();
  t.make_rows = [weight, scale, cols, block_rows, block_cols, grid, unit](int64_t begin, int64_t end, uint8_t* out) {
    for (int64_t n = begin; n < end; ++n)
      for (int64_t k = 0; k < cols; k += unit, out += 4 + unit) {
        const uint8_t* codes = weight.bytes.data() + n * cols + k;
        float s = float_at(scale, n / block_rows * grid + k / block_cols);
        // Kernels know no NaN among codes: as the scale it reaches every result of the row, as it must.
        if (std::any_of(codes, codes + unit, e4m3_is_nan)) s = std::numeric_limits<float>::quiet_NaN();
        std::memcpy(out, &s, 4);
        std::memcpy(out + 4, codes, size_t(unit));
      }
  };
  return t;
}

}  // namespace sluice::format
