#include "quant/side_blocks.h"

namespace sluice::quant {
extern const WeightFormat format_int4_32 = GroupBlock<4, 32>::format(WeightType::kInt4_32, "int4_32");
}  // namespace sluice::quant
