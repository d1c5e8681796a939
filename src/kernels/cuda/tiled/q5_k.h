#pragma once
#include "kernels/cuda/tiled/q5_codes.h"

namespace sluice::kernels::cuda {

struct TiledQ5_K : SixBitScales<176>, FiveBitCodes<0> {
  static constexpr WeightType kType = WeightType::kQ5_K;
  static uint32_t four(const uint8_t* row, int unit, int half, int t) {
    const uint8_t* from = block(row, unit) + 16 * (half % 2) + 2 * t;
    const uint32_t low = pairs_at(from + 48 + 64 * (unit % 2) + 32 * (half / 4)) >> 4 * (half / 2 % 2) & 0x0F0F0F0Fu;
    return low | (pairs_at(from + 16) >> (4 * (unit % 2) + half / 2) & 0x01010101u) << 4;
  }
};

}  // namespace sluice::kernels::cuda
