#pragma once
#include "kernels/cuda/tiled/q5_codes.h"

namespace sluice::kernels::cuda {

struct TiledQ5_1 : HalfScales<24, true>, FiveBitCodes<0> {
  static constexpr WeightType kType = WeightType::kQ5_1;
  static uint32_t four(const uint8_t* row, int unit, int half, int t) { return four_of_five_bits(block(row, unit, half), 4, half, t); }
};

}  // namespace sluice::kernels::cuda
