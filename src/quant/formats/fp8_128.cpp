#include "quant/side_blocks.h"

namespace sluice::quant {
extern const WeightFormat format_fp8_128 = Fp8Block<128>::format(WeightType::kFp8_128, "fp8_128");
}  // namespace sluice::quant
