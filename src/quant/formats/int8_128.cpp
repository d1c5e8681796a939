#include "quant/side_blocks.h"

namespace sluice::quant {
extern const WeightFormat format_int8_128 = GroupBlock<8, 128>::format(WeightType::kInt8_128, "int8_128");
}  // namespace sluice::quant
