#pragma once
#include "kernels/cuda/tiled/iq4_codes.h"

namespace sluice::kernels::cuda {

struct TiledIQ4_NL : HalfScales<18, false>, CodebookCodes {
  static constexpr WeightType kType = WeightType::kIQ4_NL;
  static uint32_t four(const uint8_t* row, int unit, int half, int t) { return pairs_at(block(row, unit, half) + 2 + 2 * t) >> 4 * (half % 2) & 0x0F0F0F0Fu; }
};

}  // namespace sluice::kernels::cuda
