// Llama 1-3 and its kin (Mistral without windows, SmolLM2).
#include "format/hf_arch.h"

namespace sluice::format {

extern const HfArch hf_llama;

namespace {

constexpr const char* kTypes[] = {"llama", "mistral"};
constexpr HfName kNames[] = {SLUICE_HF_ATTENTION_NAMES, {"ffn_norm", "post_attention_layernorm"}, SLUICE_HF_FFN_NAMES};

Status read(const Json& config, Metadata& m) {
  SLUICE_ASSIGN(const bool mlp_bias, flag_field_or(config, "mlp_bias", false));
  if (mlp_bias) return Error{ErrorCode::kUnsupported, "mlp_bias: not supported", {}};
  SLUICE_ASSIGN(const int64_t context, integer_field(config, "max_position_embeddings", 1, int64_t{1} << 40));
  SLUICE_ASSIGN(const int64_t window, integer_field_or(config, "sliding_window", context, 1, int64_t{1} << 40));
  if (window < context) return Error{ErrorCode::kUnsupported, "sliding_window: not supported by this architecture", {}};
  SLUICE_ASSIGN(const HfRope rope, read_rope_config(config, "full_attention"));
  return put_rope(hf_llama, rope, m);
}

}  // namespace

const HfArch hf_llama{"llama", kTypes, "LlamaForCausalLM", true, 0, false, "silu", kNames, read,
                             [](const Metadata&, Json&) { return Status{}; }};

}  // namespace sluice::format
