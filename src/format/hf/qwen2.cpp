// Qwen 2 and 2.5: biases on q, k and v without a flag that says so.
#include "format/hf_arch.h"

namespace sluice::format {

extern const HfArch hf_qwen2;

namespace {

constexpr const char* kTypes[] = {"qwen2"};
constexpr HfName kNames[] = {SLUICE_HF_ATTENTION_NAMES, {"ffn_norm", "post_attention_layernorm"}, SLUICE_HF_FFN_NAMES};

Status read(const Json& config, Metadata& m) {
  SLUICE_ASSIGN(const bool windows, flag_field_or(config, "use_sliding_window", false));
  if (windows) return Error{ErrorCode::kUnsupported, "use_sliding_window: not supported by this architecture", {}};
  SLUICE_ASSIGN(const HfRope rope, read_rope_config(config, "full_attention"));
  return put_rope(hf_qwen2, rope, m);
}

Status write(const Metadata&, Json& config) {
  config.erase("attention_bias");
  config["use_sliding_window"] = false;
  return {};
}

}  // namespace

const HfArch hf_qwen2{"qwen2", kTypes, "Qwen2ForCausalLM", false, 0, false, "silu", kNames, read, write};

}  // namespace sluice::format
