#include "quant/side_blocks.h"

namespace sluice::quant {
extern const WeightFormat format_fp8_64 = Fp8Block<64>::format(WeightType::kFp8_64, "fp8_64");
}  // namespace sluice::quant
