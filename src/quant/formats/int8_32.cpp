#include "quant/side_blocks.h"

namespace sluice::quant {
extern const WeightFormat format_int8_32 = GroupBlock<8, 32>::format(WeightType::kInt8_32, "int8_32");
}  // namespace sluice::quant
