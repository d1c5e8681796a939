// How quantised weights lie in device memory: tiles of 16 rows, one after the other; a tile is a row of units of 128 columns,
// all that a warp needs for 16 x 128 in one stretch:
//   pieces  16 bytes a lane and piece, in the order of the tensor cores' left factor. Lane l has rows g = l / 4 and g + 8 and of
//           each 16 columns four, which the factor wants of it: 2 (l % 4), its neighbour, and those that are 8 further on.
//           A 4-bit word has four elements of both rows, an 8-bit word two.
//   scales  for each g, of both rows: 16 bytes, a second 16 or 8 or 4, by type.
// Columns are padded to whole units and rows to whole tiles with weights of zero. Bytes are those of the file but for Q4_K's
// scales, of 8 bits instead of 6. The idea of storing weights in fragment order is Marlin's (Frantar and others, arXiv 2408.11743).
#pragma once
#include <cstddef>

#include "tensor/dtype.h"

#ifdef __CUDACC__
#define SLUICE_ANYWHERE __host__ __device__
#else
#define SLUICE_ANYWHERE
#endif

namespace sluice::kernels::cuda {

constexpr int kUnitCols = 128, kUnitRows = 16;

// Of 16-byte pieces a lane, and bytes of scales for each pair of rows. 0 pieces: the type is stored as the file has it.
SLUICE_ANYWHERE constexpr int unit_pieces(WeightType t) {
  switch (t) {
    case WeightType::kQ4_0: case WeightType::kQ4_1: case WeightType::kQ4_K: return 2;
    case WeightType::kQ6_K: return 3;
    case WeightType::kQ8_0: return 4;
    default: return 0;
  }
}
SLUICE_ANYWHERE constexpr int unit_scales(WeightType t) {
  switch (t) {
    case WeightType::kQ4_1: return 32;  // four blocks: d of both rows; then m
    case WeightType::kQ4_K: return 24;  // four blocks: scale of both rows, then minimum; then d and dmin of both rows
    case WeightType::kQ6_K: return 20;  // eight blocks of 16: scale of both rows; then d of both rows
    default: return 16;                 // four blocks: d of both rows
  }
}
SLUICE_ANYWHERE constexpr bool is_tiled(WeightType t) { return unit_pieces(t) != 0; }
SLUICE_ANYWHERE constexpr int unit_bytes(WeightType t) { return unit_pieces(t) * 512 + 8 * unit_scales(t); }
SLUICE_ANYWHERE constexpr int units_of(int cols) { return (cols + kUnitCols - 1) / kUnitCols; }
SLUICE_ANYWHERE constexpr size_t tile_bytes(WeightType t, int cols) { return size_t(units_of(cols)) * size_t(unit_bytes(t)); }

// Rows [row_begin, row_end) of a matrix in file layout into its tiles; row_begin is a multiple of 16. Any thread.
void pack_tiles(WeightType type, int rows, int cols, const void* src, void* dst, int row_begin, int row_end) noexcept;

}  // namespace sluice::kernels::cuda
