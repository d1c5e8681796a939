#include "quant/side_blocks.h"

namespace sluice::quant {
extern const WeightFormat format_int4_64 = GroupBlock<4, 64>::format(WeightType::kInt4_64, "int4_64");
}  // namespace sluice::quant
