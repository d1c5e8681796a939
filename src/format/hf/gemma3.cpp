// Gemma 3 (text): norms' weights are stored less 1, five local layers to each global one.
#include <cmath>

#include "format/hf_arch.h"

namespace sluice::format {

extern const HfArch hf_gemma3;

namespace {

constexpr const char* kTypes[] = {"gemma3_text", "gemma3"};
constexpr HfName kNames[] = {SLUICE_HF_ATTENTION_NAMES,
                             SLUICE_HF_FFN_NAMES,
                             {"attn_q_norm", "self_attn.q_norm"},
                             {"attn_k_norm", "self_attn.k_norm"},
                             {"post_attention_norm", "post_attention_layernorm"},
                             {"ffn_norm", "pre_feedforward_layernorm"},
                             {"post_ffw_norm", "post_feedforward_layernorm"}};
constexpr int64_t kMost = int64_t{1} << 30;

// Every how many layers one is global: by sliding_window_pattern, or as layer_types lists them.
Result<int64_t> read_pattern(const Json& config) {
  SLUICE_ASSIGN(int64_t pattern, integer_field_or(config, "sliding_window_pattern", 6, 1, kMost));
  const Json* types = find_field(config, "layer_types");
  if (!types) return pattern;
  if (!types->is_array() || types->empty()) return bad_file("layer_types: a list was expected");
  pattern = 1;
  while (size_t(pattern) <= types->size() && (*types)[size_t(pattern) - 1] != "full_attention") ++pattern;
  for (size_t i = 0; i < types->size(); ++i)
    if (((*types)[i] == "full_attention") != (int64_t(i) % pattern == pattern - 1))
      return Error{ErrorCode::kUnsupported, "layer_types: global layers at uneven distances are not supported", {}};
  return pattern;
}

Status read(const Json& config, Metadata& m) {
  SLUICE_ASSIGN(const int64_t window, integer_field(config, "sliding_window", 1, kMost));
  m.insert("gemma3.attention.sliding_window", window);
  SLUICE_ASSIGN(const int64_t pattern, read_pattern(config));
  m.insert("gemma3.attention.sliding_window_pattern", pattern);
  SLUICE_ASSIGN(HfRope rope, read_rope_config(config, "full_attention"));
  if (rope.theta == 0) rope.theta = 1e6;
  SLUICE_TRY(put_rope(hf_gemma3, rope, m));
  SLUICE_ASSIGN(double local, number_field_or(config, "rope_local_base_freq", 10000));
  if (const Json* both = find_field(config, "rope_parameters"); both && find_field(*both, "sliding_attention")) {
    SLUICE_ASSIGN(const HfRope sliding, read_rope_config(config, "sliding_attention"));
    if (sliding.type != "default") return Error{ErrorCode::kUnsupported, "rope_parameters.sliding_attention: only the default type is supported", {}};
    if (sliding.theta > 0) local = sliding.theta;
  }
  m.insert("gemma3.rope.freq_base_swa", local);
  for (const char* cap : {"attn_logit_softcapping", "final_logit_softcapping"})
    if (find_field(config, cap)) return Error{ErrorCode::kUnsupported, std::string(cap) + ": not supported by this architecture", {}};
  // Scores are scaled by the head size, but in the model of 62 layers, where it is the residual stream's share of a head.
  SLUICE_ASSIGN(const int64_t head_dim, m.integer("gemma3.attention.key_length", 1, kMost));
  SLUICE_ASSIGN(const int64_t layers, m.integer("gemma3.block_count", 1, kMost));
  SLUICE_ASSIGN(const int64_t dim, m.integer("gemma3.embedding_length", 1, kMost));
  SLUICE_ASSIGN(const int64_t heads, m.integer("gemma3.attention.head_count", 1, kMost));
  const double usual = layers == 62 ? double(dim) / double(heads) : double(head_dim);
  SLUICE_ASSIGN(const double scalar, number_field_or(config, "query_pre_attn_scalar", usual));
  if (scalar != usual) return Error{ErrorCode::kUnsupported, "query_pre_attn_scalar: only " + std::to_string(usual) + " is supported here", {}};
  return {};
}

Status write(const Metadata& m, Json& config) {
  SLUICE_ASSIGN(const int64_t window, m.integer("gemma3.attention.sliding_window", 1, kMost));
  SLUICE_ASSIGN(const int64_t pattern, m.integer_or("gemma3.attention.sliding_window_pattern", 6, 1, kMost));
  SLUICE_ASSIGN(const double local, m.number_or("gemma3.rope.freq_base_swa", 10000.0));
  const auto layers = config["num_hidden_layers"].get<int64_t>();
  config["sliding_window"] = window;
  config["sliding_window_pattern"] = pattern;
  Json types = Json::array();
  for (int64_t i = 0; i < layers; ++i) types.push_back(i % pattern == pattern - 1 ? "full_attention" : "sliding_attention");
  config["layer_types"] = std::move(types);
  config["rope_local_base_freq"] = local;
  config.erase("hidden_act");
  config["hidden_activation"] = hf_gemma3.activation;
  config["query_pre_attn_scalar"] = layers == 62 ? config["hidden_size"].get<int64_t>() / config["num_attention_heads"].get<int64_t>()
                                                 : config["head_dim"].get<int64_t>();
  return {};
}

}  // namespace

const HfArch hf_gemma3{"gemma3", kTypes, "Gemma3ForCausalLM", false, 1, true, "gelu_pytorch_tanh", kNames, read, write};

}  // namespace sluice::format
