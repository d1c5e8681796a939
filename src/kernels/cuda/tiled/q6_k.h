#pragma once
#include "kernels/cuda/tiled_codes.h"

namespace sluice::kernels::cuda {

struct TiledQ6_K : SignedScales<16> {
  static constexpr WeightType kType = WeightType::kQ6_K;
  static constexpr int kBits = 6;  // four, and after them two more
  static const uint8_t* block(const uint8_t* row, int unit) { return row + size_t(unit / 2) * 210; }
  static uint32_t four(const uint8_t* row, int unit, int half, int t) {
    const uint8_t* from = block(row, unit) + 16 * (half % 2) + 2 * t;
    const int b = half / 2;
    const uint32_t low = pairs_at(from + 64 * (unit % 2) + 32 * (b % 2)) >> 4 * (b / 2) & 0x0F0F0F0Fu;
    return low | (pairs_at(from + 128 + 32 * (unit % 2)) >> 2 * b & 0x03030303u) << 4;
  }
  static void put(uint32_t* words, int half, uint32_t u, uint32_t l) {
    words[half] = put_four_bits(u, l);
    put_two_bits(words + 8, half, u >> 4, l >> 4);
  }
  static void put_scales(const uint8_t* row, int unit, int, int r, uint8_t* to) {
    for (int half = 0; half < kUnitHalves; ++half) to[2 * half + r] = block(row, unit)[192 + 8 * (unit % 2) + half];
    put16(to + kBytes + 2 * r, block(row, unit) + 208);
  }
  template <class Lane> SLUICE_DEVICE static void left(const Lane& lane, int half, uint32_t a[4]) { six_bits(lane.code(half), lane.code(8 + half / 2), half, a); }
};

}  // namespace sluice::kernels::cuda
