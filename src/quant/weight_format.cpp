#include "quant/weight_format.h"

namespace sluice::quant {

const WeightFormat* find_format(uint32_t id) {
  for (const WeightFormat* f : formats_table())
    if (uint32_t(f->type) == id) return f;
  return nullptr;
}
const WeightFormat* find_format(WeightType type) { return find_format(uint32_t(type)); }

}  // namespace sluice::quant
