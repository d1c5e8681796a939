#pragma once
#include "kernels/cuda/tiled_codes.h"

namespace sluice::kernels::cuda {

// Scales of 6 bits less 32, of 8 bits here.
struct TiledQ3_K : SignedScales<16> {
  static constexpr WeightType kType = WeightType::kQ3_K;
  static constexpr int kBits = 3;  // two, and after them a third
  static const uint8_t* block(const uint8_t* row, int unit) { return row + size_t(unit / 2) * 110; }
  static uint32_t four(const uint8_t* row, int unit, int half, int t) {
    const uint8_t* from = block(row, unit) + 16 * (half % 2) + 2 * t;
    const int b = half / 2;
    return (pairs_at(from + 32 + 32 * (unit % 2)) >> 2 * b & 0x03030303u) | (pairs_at(from) >> (4 * (unit % 2) + b) & 0x01010101u) << 2;
  }
  static void put(uint32_t* words, int half, uint32_t u, uint32_t l) {
    put_two_bits(words, half, u, l);
    put_one_bit(words + 4, half, u >> 2, l >> 2);
  }
  static void put_scales(const uint8_t* row, int unit, int, int r, uint8_t* to) {
    const uint8_t* s = block(row, unit) + 96;
    for (int half = 0; half < kUnitHalves; ++half) {
      const int low = s[half] >> 4 * (unit % 2) & 15, high = s[8 + half % 4] >> 2 * (2 * (unit % 2) + half / 4) & 3;
      to[2 * half + r] = uint8_t((low | high << 4) - 32);
    }
    put16(to + kBytes + 2 * r, s + 12);
  }
  template <class Lane>
  SLUICE_DEVICE static void left(const Lane& lane, int half, uint32_t a[4]) {
    two_bits<4>(lane.code(half / 2), one_bit(lane.code(4 + half / 4), half, 2), half, a);
  }
};

}  // namespace sluice::kernels::cuda
