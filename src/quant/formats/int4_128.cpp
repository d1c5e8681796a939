#include "quant/side_blocks.h"

namespace sluice::quant {
extern const WeightFormat format_int4_128 = GroupBlock<4, 128>::format(WeightType::kInt4_128, "int4_128");
}  // namespace sluice::quant
