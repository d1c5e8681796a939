#pragma once
#include "kernels/cuda/tiled/iq4_codes.h"

namespace sluice::kernels::cuda {

// Scales of 6 bits less 32, of 8 bits here.
struct TiledIQ4_XS : SignedScales<32>, CodebookCodes {
  static constexpr WeightType kType = WeightType::kIQ4_XS;
  static const uint8_t* block(const uint8_t* row, int unit) { return row + size_t(unit / 2) * 136; }
  static uint32_t four(const uint8_t* row, int unit, int half, int t) {
    return pairs_at(block(row, unit) + 8 + 64 * (unit % 2) + 16 * (half / 2) + 2 * t) >> 4 * (half % 2) & 0x0F0F0F0Fu;
  }
  static void put_scales(const uint8_t* row, int unit, int, int r, uint8_t* to) {
    const uint8_t* from = block(row, unit);
    for (int b = 0; b < 4; ++b) {
      const int i = 4 * (unit % 2) + b, low = from[4 + i / 2] >> 4 * (i % 2) & 15, high = from[2 + i / 4] >> 2 * (i % 4) & 3;
      to[2 * b + r] = uint8_t((low | high << 4) - 32);
    }
    put16(to + kBytes + 2 * r, from);
  }
};

}  // namespace sluice::kernels::cuda
