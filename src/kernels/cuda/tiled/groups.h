#pragma once
#include "kernels/cuda/tiled_codes.h"

namespace sluice::kernels::cuda {

// Grouped integers (quant/side_blocks.h): an f16 scale and a zero of a byte for each `group` columns of a row. A code less its zero is a whole number of at most 9
// bits, so there is no minimum: the zero is part of what makes codes f16. Zeros of four-bit codes are up to 64, and no file has them above 16.
template <WeightType type, int bits, int group>
struct TiledGroups {
  static constexpr WeightType kType = type;
  // Scales of both rows; then their zeros.
  static constexpr int kBits = bits, kGroup = group, kGroups = kUnitCols / group, kScaleBytes = (6 * kGroups + 3) / 4 * 4;
  static constexpr bool kHasMin = false, kFileHalves = true;

  static const uint8_t* block(const uint8_t* row, int unit, int half) { return row + size_t(unit * kGroups + half * 16 / group) * (3 + group * bits / 8); }
  static uint32_t four(const uint8_t* row, int unit, int half, int t) {
    const uint8_t* from = block(row, unit, half) + 3 + half * 16 % group * bits / 8;
    if (bits == 8) return pairs_at(from + 2 * t);
    const uint32_t bytes = from[t] | uint32_t(from[t + 4]) << 16;  // of two codes each
    return (bytes & 0x000F000Fu) | (bytes & 0x00F000F0u) << 4;
  }
  static void put(uint32_t* words, int half, uint32_t u, uint32_t l) {
    if (bits == 8) put_eight_bits(words, half, u, l);
    else words[half] = put_four_bits(u, l);
  }
  static void put_scales(const uint8_t* row, int unit, int blocks, int r, uint8_t* to) {
    for (int i = 0; i < blocks * 32 / group; ++i) {
      const uint8_t* from = block(row, unit, i * group / 16);
      put16(to + 4 * i + 2 * r, from);
      to[4 * kGroups + 2 * i + r] = from[2];
    }
  }

  SLUICE_ANYWHERE static constexpr int scale_word(int half) { return half * 16 / group; }
  template <class Lane> SLUICE_DEVICE static float scale(const Lane& lane, int half, int r) { return half_bits(lane.scale(scale_word(half)) >> 16 * r); }
  // off_low of a row's zero.
  template <class Lane>
  SLUICE_DEVICE static uint32_t low(const Lane& lane, int half, int r) {
    const int at = 2 * scale_word(half) + r;
    return bytes_of(lane.scale(kGroups + at / 4), 0x64646464u, 0x4040u | uint32_t(at % 4) * 0x0101u);
  }
  template <class Lane>
  SLUICE_DEVICE static void left(const Lane& lane, int half, uint32_t a[4]) {
    if constexpr (bits == 8) eight_bits(lane.code(2 * half), lane.code(2 * half + 1), low(lane, half, 0), low(lane, half, 1), a);
    else four_bits(lane.code(half), low(lane, half, 0), to_high(0) + ((low(lane, half, 1) ^ kMagic) << 4), a);
  }
};

}  // namespace sluice::kernels::cuda
