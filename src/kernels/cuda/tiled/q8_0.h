#pragma once
#include "kernels/cuda/tiled_codes.h"

namespace sluice::kernels::cuda {

// Bytes with 128 added.
struct TiledQ8_0 : HalfScales<34, false> {
  static constexpr WeightType kType = WeightType::kQ8_0;
  static constexpr int kBits = 8;
  static uint32_t four(const uint8_t* row, int unit, int half, int t) { return pairs_at(block(row, unit, half) + 2 + 16 * (half % 2) + 2 * t) ^ 0x80808080u; }
  static void put(uint32_t* words, int half, uint32_t u, uint32_t l) { put_eight_bits(words, half, u, l); }
  template <class Lane>
  SLUICE_DEVICE static void left(const Lane& lane, int half, uint32_t a[4]) {
    eight_bits(lane.code(2 * half), lane.code(2 * half + 1), off_low(128), off_low(128), a);
  }
};

}  // namespace sluice::kernels::cuda
