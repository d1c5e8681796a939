// Qwen 2 and 2.5: as Llama, but rotary halves and biases on q, k and v.
#include "model/arch.h"

namespace sluice::model {

extern const ArchDef arch_qwen2{"qwen2", [](const format::Metadata& m) -> Result<ModelSpec> {
  SLUICE_ASSIGN(ModelSpec s, read_common_spec(m));
  s.rope_style = kernels::RopeStyle::kHalves;
  return s;
}};

}  // namespace sluice::model
