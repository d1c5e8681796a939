// Llama 1-3 and its kin (Mistral, TinyLlama, SmolLM2): RMS norms, rotary pairs (2i, 2i+1), SiLU-gated FFN.
#include "model/arch.h"

namespace sluice::model {

extern const ArchDef arch_llama{"llama", [](const format::Metadata& m) { return read_common_spec(m); }};

}  // namespace sluice::model
