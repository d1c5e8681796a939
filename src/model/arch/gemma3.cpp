// Gemma 3 (text): scaled embeddings, norms before and after each half layer, q/k norms, GELU-gated FFN, five local layers
// (sliding window, own rotary base) to each global one.
#include <cmath>

#include "model/arch.h"

namespace sluice::model {

extern const ArchDef arch_gemma3{"gemma3", [](const format::Metadata& m) -> Result<ModelSpec> {
  SLUICE_ASSIGN(ModelSpec s, read_common_spec(m));
  s.rope_style = kernels::RopeStyle::kHalves;
  s.embed_scale = std::sqrt(float(s.dim));
  s.gelu = s.qk_norm = s.post_norms = true;
  if (s.num_layers == 62) s.attention_scale = float(1.0 / std::sqrt(double(s.dim) / s.q_heads));  // the 27B
  SLUICE_ASSIGN(s.rope_base_local, m.number_or("gemma3.rope.freq_base_swa", 10000.0));
  SLUICE_ASSIGN(int64_t window, m.integer("gemma3.attention.sliding_window", 1, kMaxContext));
  SLUICE_ASSIGN(int64_t pattern, m.integer_or("gemma3.attention.sliding_window_pattern", 6, 1, kMaxLayers));
  s.window = int(window);
  s.local.resize(size_t(s.num_layers));
  for (int i = 0; i < s.num_layers; ++i) s.local[size_t(i)] = i % pattern < pattern - 1;
  return s;
}};

}  // namespace sluice::model
