#include <cmath>

#include "format/hf_arch.h"
#include "format/shown.h"

namespace sluice::format {
namespace {

constexpr int64_t kMost = int64_t{1} << 40;  // sizes are bounded where a model's spec is read

Error unsupported(std::string what) { return {ErrorCode::kUnsupported, std::move(what), {}}; }

}  // namespace

const HfArch* find_hf_arch(const std::string& model_type, std::string& known) {
  for (const HfArch* a : hf_table())
    for (const char* t : a->model_types) {
      if (model_type == t) return a;
      known += std::string(known.empty() ? "" : ", ") + t;
    }
  return nullptr;
}

const HfArch* hf_arch_of(const Metadata& m) {
  const std::string name = m.string_or("general.architecture", "");
  for (const HfArch* a : hf_table())
    if (name == a->name) return a;
  return nullptr;
}

Result<HfRope> read_rope_config(const Json& config, const char* layer_type) {
  HfRope r;
  SLUICE_ASSIGN(r.theta, number_field_or(config, "rope_theta", 0));
  const Json* scaling = find_field(config, "rope_parameters");
  if (scaling && find_field(*scaling, layer_type)) scaling = find_field(*scaling, layer_type);
  if (!scaling) scaling = find_field(config, "rope_scaling");
  if (!scaling) return r;
  SLUICE_ASSIGN(r.theta, number_field_or(*scaling, "rope_theta", r.theta));
  r.type = string_field_or(*scaling, "rope_type", string_field_or(*scaling, "type", "default"));
  const std::pair<const char*, double*> fields[] = {{"factor", &r.factor}, {"low_freq_factor", &r.low_freq_factor},
      {"high_freq_factor", &r.high_freq_factor}, {"original_max_position_embeddings", &r.original_context}};
  for (const auto& [key, out] : fields) {
    SLUICE_ASSIGN(*out, number_field_or(*scaling, key, *out));
    if (!(*out > 0)) return bad_file("rope_scaling." + std::string(key) + ": must be above 0");
  }
  return r;
}

Status put_rope(const HfArch& arch, const HfRope& rope, Metadata& m) {
  const std::string p = std::string(arch.name) + ".rope.";
  if (rope.theta < 0) return bad_file("rope_theta: below 0");
  if (rope.theta > 0) m.insert(p + "freq_base", rope.theta);
  if (rope.type == "default" || rope.type == "llama3") return {};
  if (rope.type != "linear") return unsupported("rope_scaling.rope_type: '" + shown(rope.type) + "' is not supported (default, linear and llama3 are)");
  m.insert(p + "scaling.type", std::string("linear"));
  m.insert(p + "scaling.factor", rope.factor);
  return {};
}

std::vector<float> rope_factors(const HfRope& rope, int head_dim) {
  if (rope.type != "llama3") return {};
  std::vector<float> out(size_t(head_dim / 2));
  const double theta = rope.theta > 0 ? rope.theta : 10000.0;
  for (size_t i = 0; i < out.size(); ++i) {
    const double wavelength = 2 * M_PI * std::pow(theta, 2.0 * double(i) / head_dim), turns = rope.original_context / wavelength;
    const double between = (turns - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
    const double share = turns >= rope.high_freq_factor ? 1 : turns <= rope.low_freq_factor ? 0 : between;
    out[i] = float(1 / ((1 - share) / rope.factor + share));
  }
  return out;
}

Status read_common_config(const HfArch& arch, const Json& config, Metadata& m) {
  const std::string p = std::string(arch.name) + ".";
  m.insert("general.architecture", std::string(arch.name));
  static constexpr std::pair<const char*, const char*> kSizes[] = {
      {"num_hidden_layers", "block_count"}, {"hidden_size", "embedding_length"}, {"max_position_embeddings", "context_length"},
      {"intermediate_size", "feed_forward_length"}, {"num_attention_heads", "attention.head_count"}, {"vocab_size", "vocab_size"}};
  for (const auto& [theirs, ours] : kSizes) {
    SLUICE_ASSIGN(const int64_t n, integer_field(config, theirs, 1, kMost));
    m.insert(p + ours, n);
  }
  SLUICE_ASSIGN(const int64_t heads, integer_field(config, "num_attention_heads", 1, kMost));
  SLUICE_ASSIGN(const int64_t dim, integer_field(config, "hidden_size", 1, kMost));
  SLUICE_ASSIGN(const int64_t kv_heads, integer_field_or(config, "num_key_value_heads", heads, 1, kMost));
  SLUICE_ASSIGN(const int64_t head_dim, integer_field_or(config, "head_dim", dim / heads, 1, kMost));
  m.insert(p + "attention.head_count_kv", kv_heads);
  m.insert(p + "attention.key_length", head_dim);
  m.insert(p + "attention.value_length", head_dim);
  SLUICE_ASSIGN(const double eps, number_field_or(config, "rms_norm_eps", 1e-6));
  m.insert(p + "attention.layer_norm_rms_epsilon", eps);
  const std::string act = string_field_or(config, "hidden_activation", string_field_or(config, "hidden_act", arch.activation));
  if (act != arch.activation) return unsupported("hidden_act: '" + shown(act) + "' is not supported (" + arch.activation + " is)");
  SLUICE_ASSIGN(const double rotary, number_field_or(config, "partial_rotary_factor", 1));
  if (rotary != 1) return unsupported("partial_rotary_factor: only 1 is supported");
  m.insert(p + "rope.dimension_count", head_dim);
  return arch.read(config, m);
}

Status write_common_config(const HfArch& arch, const Metadata& m, Json& config) {
  const std::string p = std::string(arch.name) + ".";
  config["architectures"] = {arch.class_name};
  config["model_type"] = arch.model_types.front();
  static constexpr std::pair<const char*, const char*> kSizes[] = {
      {"num_hidden_layers", "block_count"}, {"hidden_size", "embedding_length"}, {"max_position_embeddings", "context_length"},
      {"intermediate_size", "feed_forward_length"}, {"num_attention_heads", "attention.head_count"}};
  for (const auto& [theirs, ours] : kSizes) {
    SLUICE_ASSIGN(const int64_t n, m.integer(p + ours, 1, kMost));
    config[theirs] = n;
  }
  SLUICE_ASSIGN(const int64_t heads, m.integer(p + "attention.head_count", 1, kMost));
  SLUICE_ASSIGN(const int64_t dim, m.integer(p + "embedding_length", 1, kMost));
  SLUICE_ASSIGN(const int64_t kv_heads, m.integer_or(p + "attention.head_count_kv", heads, 1, kMost));
  SLUICE_ASSIGN(const int64_t head_dim, m.integer_or(p + "attention.key_length", dim / heads, 1, kMost));
  SLUICE_ASSIGN(const double eps, m.number_or(p + "attention.layer_norm_rms_epsilon", 1e-6));
  SLUICE_ASSIGN(const double theta, m.number_or(p + "rope.freq_base", 10000.0));
  config["num_key_value_heads"] = kv_heads;
  config["head_dim"] = head_dim;
  config["rms_norm_eps"] = eps;
  config["rope_theta"] = theta;
  config["attention_bias"] = false;
  config["attention_dropout"] = 0.0;
  config["initializer_range"] = 0.02;
  config["use_cache"] = true;
  config["hidden_act"] = arch.activation;
  SLUICE_ASSIGN(const double factor, m.number_or(p + "rope.scaling.factor", 0.0));
  const std::string type = m.string_or(p + "rope.scaling.type", "linear");
  if (factor > 0 && factor != 1 && type != "none") {
    if (type != "linear") return unsupported(p + "rope.scaling.type: '" + shown(type) + "' cannot be written to config.json");
    config["rope_scaling"] = {{"rope_type", "linear"}, {"factor", factor}};
  }
  return arch.write(m, config);
}

}  // namespace sluice::format
