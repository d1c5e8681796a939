#include "model/model_spec.h"

#include <cmath>

#include "model/arch.h"

namespace sluice::model {
namespace {

// Scalar, or an array whose values are all the same (a per-layer form that some writers use).
Result<int64_t> integer_or_uniform(const format::Metadata& m, const std::string& key, int64_t fallback, int64_t max) {
  const format::Value* v = m.find(key);
  if (v && std::holds_alternative<std::vector<int64_t>>(*v)) {
    const auto& a = std::get<std::vector<int64_t>>(*v);
    if (a.empty()) return bad_file(key + ": an empty array");
    for (int64_t x : a)
      if (x != a[0]) return Error{ErrorCode::kUnsupported, key + ": layers that differ are not supported", {}};
    if (a[0] < 1 || a[0] > max) return bad_file(key + ": " + std::to_string(a[0]) + " is outside 1.." + std::to_string(max));
    return a[0];
  }
  return fallback > 0 ? m.integer_or(key, fallback, 1, max) : m.integer(key, 1, max);
}

Status read_rope(const format::Metadata& m, const std::string& p, ModelSpec& s) {
  SLUICE_ASSIGN(int64_t dims, m.integer_or(p + "rope.dimension_count", s.head_dim, 2, s.head_dim));
  if (dims % 2) return bad_file(p + "rope.dimension_count: " + std::to_string(dims) + " is odd");
  s.rope_dims = int(dims);
  SLUICE_ASSIGN(s.rope_base, m.number_or(p + "rope.freq_base", 10000.0));
  if (!(s.rope_base > 0)) return bad_file(p + "rope.freq_base: must be above 0");
  const std::string type = m.string_or(p + "rope.scaling.type", "linear");
  SLUICE_ASSIGN(double factor, m.number_or(p + "rope.scaling.factor", 0.0));
  if (factor < 0) return bad_file(p + "rope.scaling.factor: below 0");
  if (factor > 0 && factor != 1 && type != "none") {
    if (type != "linear")
      return Error{ErrorCode::kUnsupported, p + "rope.scaling.type: '" + type + "' is not supported (none and linear are)", {}};
    s.rope_scale = 1.0 / factor;
  }
  return {};
}

}  // namespace

float ModelSpec::scale() const {
  return attention_scale > 0 ? attention_scale : float(1.0 / std::sqrt(double(head_dim)));
}

Result<ModelSpec> read_common_spec(const format::Metadata& m) {
  ModelSpec s;
  SLUICE_ASSIGN(s.architecture, m.string("general.architecture"));
  s.name = m.string_or("general.name", s.architecture);
  const std::string p = s.architecture + ".";
  SLUICE_ASSIGN(int64_t layers, m.integer(p + "block_count", 1, kMaxLayers));
  SLUICE_ASSIGN(int64_t dim, m.integer(p + "embedding_length", 1, kMaxDim));
  SLUICE_ASSIGN(int64_t context, m.integer(p + "context_length", 1, kMaxContext));
  SLUICE_ASSIGN(int64_t heads, integer_or_uniform(m, p + "attention.head_count", 0, kMaxHeads));
  SLUICE_ASSIGN(int64_t kv_heads, integer_or_uniform(m, p + "attention.head_count_kv", heads, kMaxHeads));
  SLUICE_ASSIGN(int64_t ffn, integer_or_uniform(m, p + "feed_forward_length", 0, kMaxFfnDim));
  SLUICE_ASSIGN(int64_t head_dim, m.integer_or(p + "attention.key_length", dim / heads, 2, kMaxHeadDim));
  SLUICE_ASSIGN(int64_t value_dim, m.integer_or(p + "attention.value_length", head_dim, 2, kMaxHeadDim));
  if (value_dim != head_dim) return bad_file(p + "attention.value_length: differs from key_length");
  if (heads % kv_heads) return bad_file(p + "attention.head_count: no multiple of head_count_kv");
  if (head_dim < 2 || head_dim > kMaxHeadDim || head_dim % 8)
    return bad_file(p + "attention.key_length: " + std::to_string(head_dim) + " is no multiple of 8 in 8.." + std::to_string(kMaxHeadDim));
  SLUICE_ASSIGN(double eps, m.number_or(p + "attention.layer_norm_rms_epsilon", -1));
  if (!(eps >= 0 && eps < 1)) return bad_file(p + "attention.layer_norm_rms_epsilon: missing or outside 0..1");
  if (m.has(p + "expert_count"))
    return Error{ErrorCode::kUnsupported, p + "expert_count: mixtures of experts are not supported", {}};
  s.num_layers = int(layers);
  s.dim = int(dim);
  s.max_context = int(context);
  s.q_heads = int(heads);
  s.kv_heads = int(kv_heads);
  s.ffn_dim = int(ffn);
  s.head_dim = int(head_dim);
  s.norm_eps = float(eps);
  SLUICE_TRY(read_rope(m, p, s));
  return s;
}

Result<ModelSpec> read_spec(const format::Metadata& metadata) {
  SLUICE_ASSIGN(std::string name, metadata.string("general.architecture"));
  std::string known;
  for (const ArchDef* arch : arch_table()) {
    if (name == arch->name) return arch->read(metadata);
    known += std::string(known.empty() ? "" : ", ") + arch->name;
  }
  return Error{ErrorCode::kUnsupported, "general.architecture: '" + name.substr(0, 40) + "' is not supported (" + known + " are)", {}};
}

}  // namespace sluice::model
