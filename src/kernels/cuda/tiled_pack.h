// Packing of tiles (tiled_codes.h) on the host.
#pragma once
#include <algorithm>

#include "kernels/cuda/tiled_codes.h"
#include "quant/weight_format.h"

namespace sluice::kernels::cuda {

// A unit out of 16 rows in file layout, null past the last; blocks: of 32 columns, that there are.
template <class T>
void pack_unit(const uint8_t* const rows[kUnitRows], int unit, int blocks, uint8_t* to) {
  std::memset(to, 0, size_t(kUnitBytes<T>));  // scales of zero where there is nothing
  for (int lane = 0; lane < 32; ++lane) {
    const uint8_t *upper = rows[lane / 4], *lower = rows[lane / 4 + 8];
    uint32_t words[kCodeWords<T>] = {};
    for (int half = 0; half < 2 * blocks; ++half)
      T::put(words, half, upper ? T::four(upper, unit, half, lane % 4) : 0, lower ? T::four(lower, unit, half, lane % 4) : 0);
    for (int i = 0; i < kCodeWords<T>; i += 2) std::memcpy(to + code_place<T>(lane, i), words + i, 8);
  }
  for (int g = 0; g < 8; ++g) {
    uint8_t scales[T::kScaleBytes] = {};
    for (int r = 0; r < 2; ++r)
      if (const uint8_t* row = rows[g + 8 * r]) T::put_scales(row, unit, blocks, r, scales);
    for (int i = 0; i < T::kScaleBytes; i += 4) std::memcpy(to + kCodeBytes<T> + scale_place<T>(g, 8, i), scales + i, 4);
  }
}

// Rows [row_begin, row_end) of a matrix into its tiles; row_begin is a multiple of 16. Any thread.
template <class T>
void pack_tiles(int rows, int cols, const void* src, void* dst, int row_begin, int row_end) noexcept {
  const size_t row_bytes = quant::row_bytes(*quant::find_format(T::kType), size_t(cols));
  for (int first = row_begin; first < row_end; first += kUnitRows) {
    const uint8_t* tile[kUnitRows];
    for (int i = 0; i < kUnitRows; ++i) tile[i] = first + i < rows ? static_cast<const uint8_t*>(src) + size_t(first + i) * row_bytes : nullptr;
    uint8_t* to = static_cast<uint8_t*>(dst) + size_t(first / kUnitRows) * tile_bytes<T>(cols);
    for (int unit = 0; unit < units_of(cols); ++unit) pack_unit<T>(tile, unit, std::min(4, cols / 32 - 4 * unit), to + size_t(unit) * kUnitBytes<T>);
  }
}

}  // namespace sluice::kernels::cuda
