#include "quant/side_blocks.h"

namespace sluice::quant {
extern const WeightFormat format_int8_64 = GroupBlock<8, 64>::format(WeightType::kInt8_64, "int8_64");
}  // namespace sluice::quant
