#include "quant/side_blocks.h"

namespace sluice::quant {
extern const WeightFormat format_fp8_32 = Fp8Block<32>::format(WeightType::kFp8_32, "fp8_32");
}  // namespace sluice::quant
