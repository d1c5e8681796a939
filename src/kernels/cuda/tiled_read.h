// Weights out of tiles in memory (tiled_codes.h).
#pragma once
#include "kernels/cuda/tiled_codes.h"

namespace sluice::kernels::cuda {

// A lane's words of a unit, read one by one.
template <class T>
struct LaneInMemory {
  const uint8_t* unit;
  int lane;
  SLUICE_DEVICE uint32_t code(int i) const { return word_of(unit + code_place<T>(lane, i)); }
  SLUICE_DEVICE uint32_t scale(int i) const { return word_of(unit + kCodeBytes<T> + scale_place<T>(lane / 4, 8, 4 * i)); }
};

// Elements [k, k + 8), k a multiple of 8, of a row, to the bit what quant/formats gives, but for the sign of zeros. tiles: the matrix.
template <class T>
SLUICE_DEVICE inline void tiled8(const uint8_t* tiles, int cols, int row, int k, float w[8]) {
  const uint8_t* unit = tiles + row / kUnitRows * tile_bytes<T>(cols) + size_t(k / kUnitCols) * kUnitBytes<T>;
  const int half = k % kUnitCols / 16, g = row % 8, r = row % 16 / 8;
  LaneInMemory<T> lane{unit, 4 * g};
  const float scale = T::scale(lane, half, r);
  float min = 0;
  if constexpr (T::kHasMin) min = T::min(lane, half, r);
  SLUICE_UNROLL
  for (int part = 0; part < 4; ++part, ++lane.lane) {  // four lanes have two of the eight each
    uint32_t a[4];
    T::left(lane, half, a);
    const uint32_t upper = k % 16 ? a[2] : a[0], lower = k % 16 ? a[3] : a[1], pair = r ? lower : upper;
    SLUICE_UNROLL
    for (int j = 0; j < 2; ++j) {
      const float scaled = times(scale, half_bits(pair >> 16 * j & 0xFFFF));
      w[2 * part + j] = T::kHasMin ? less(scaled, min) : scaled;
    }
  }
}

}  // namespace sluice::kernels::cuda
