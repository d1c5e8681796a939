#pragma once
#include "kernels/cuda/tiled/q5_codes.h"

namespace sluice::kernels::cuda {

struct TiledQ5_0 : HalfScales<22, false>, FiveBitCodes<16> {
  static constexpr WeightType kType = WeightType::kQ5_0;
  static uint32_t four(const uint8_t* row, int unit, int half, int t) { return four_of_five_bits(block(row, unit, half), 2, half, t); }
};

}  // namespace sluice::kernels::cuda
