#pragma once
#include "kernels/cuda/tiled_codes.h"

namespace sluice::kernels::cuda {

struct TiledQ4_K : SixBitScales<144> {
  static constexpr WeightType kType = WeightType::kQ4_K;
  static constexpr int kBits = 4;
  static uint32_t four(const uint8_t* row, int unit, int half, int t) {
    return pairs_at(block(row, unit) + 16 + 64 * (unit % 2) + 32 * (half / 4) + 16 * (half % 2) + 2 * t) >> 4 * (half / 2 % 2) & 0x0F0F0F0Fu;
  }
  static void put(uint32_t* words, int half, uint32_t u, uint32_t l) { words[half] = put_four_bits(u, l); }
  template <class Lane> SLUICE_DEVICE static void left(const Lane& lane, int half, uint32_t a[4]) { four_bits(lane.code(half), off_low(0), to_high(0), a); }
};

}  // namespace sluice::kernels::cuda
