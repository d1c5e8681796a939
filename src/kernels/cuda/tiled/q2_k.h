#pragma once
#include "kernels/cuda/tiled_codes.h"

namespace sluice::kernels::cuda {

// Eight bytes of a scale and a minimum for 16 columns, as the file has them: scale of both rows side by side; then d and dmin of each row.
struct TiledQ2_K {
  static constexpr WeightType kType = WeightType::kQ2_K;
  static constexpr int kBits = 2, kGroup = 16, kScaleBytes = 24;
  static constexpr bool kHasMin = true, kFileHalves = false;
  static const uint8_t* block(const uint8_t* row, int unit) { return row + size_t(unit / 2) * 84; }
  static uint32_t four(const uint8_t* row, int unit, int half, int t) {
    return pairs_at(block(row, unit) + 16 + 32 * (unit % 2) + 16 * (half % 2) + 2 * t) >> 2 * (half / 2) & 0x03030303u;
  }
  static void put(uint32_t* words, int half, uint32_t u, uint32_t l) { put_two_bits(words, half, u, l); }
  static void put_scales(const uint8_t* row, int unit, int, int r, uint8_t* to) {
    for (int half = 0; half < kUnitHalves; ++half) to[2 * half + r] = block(row, unit)[8 * (unit % 2) + half];
    std::memcpy(to + 16 + 4 * r, block(row, unit) + 80, 4);
  }
  template <class Lane> SLUICE_DEVICE static void left(const Lane& lane, int half, uint32_t a[4]) { two_bits<0>(lane.code(half / 2), 0, half, a); }
  template <class Lane>
  SLUICE_DEVICE static float scale(const Lane& lane, int half, int r) {
    const int at = 2 * half + r;
    return times_byte(half_bits(lane.scale(4 + r)), lane.scale(at / 4) & 0x0F0F0F0Fu, at % 4);
  }
  template <class Lane>
  SLUICE_DEVICE static float min(const Lane& lane, int half, int r) {
    const int at = 2 * half + r;
    return times_byte(half_bits(lane.scale(4 + r) >> 16), lane.scale(at / 4) >> 4 & 0x0F0F0F0Fu, at % 4);
  }
};

}  // namespace sluice::kernels::cuda
