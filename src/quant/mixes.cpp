#include "quant/mixes.h"

#include <charconv>

#include "quant/weight_format.h"

namespace sluice::quant {
namespace {

using enum WeightType;

constexpr Mix kMixes[] = {
    {"q8_0", kQ8_0, 0, 7},      {"q6_k", kQ6_K, 0, 18},     {"q5_k_m", kQ5_K, 'M', 17}, {"q5_k_s", kQ5_K, 'S', 16}, {"q4_k_m", kQ4_K, 'M', 15},
    {"q4_k_s", kQ4_K, 'S', 14}, {"q3_k_m", kQ3_K, 'M', 12}, {"q3_k_s", kQ3_K, 'S', 11}, {"q2_k", kQ2_K, 0, 10},     {"q4_0", kQ4_0, 0, 2},
    {"q4_1", kQ4_1, 0, 3},      {"q5_0", kQ5_0, 0, 8},      {"q5_1", kQ5_1, 0, 9},      {"iq4_nl", kIQ4_NL, 0, 25}, {"iq4_xs", kIQ4_XS, 0, 30},
    {"f16", kF16, 0, 1},        {"bf16", kBF16, 0, 32},     {"f32", kF32, 0, 0},
};

// "blk.12.attn_v.weight" -> 12 and "attn_v"; others -1 and the name without ".weight".
struct Place {
  int layer = -1;
  std::string_view role;
};
Place place_of(std::string_view name) {
  Place p;
  if (name.ends_with(".weight")) name.remove_suffix(7);
  p.role = name;
  if (!name.starts_with("blk.")) return p;
  const size_t dot = name.find('.', 4);
  if (dot == std::string_view::npos) return p;
  if (std::from_chars(name.data() + 4, name.data() + dot, p.layer).ec == std::errc{}) p.role = name.substr(dot + 1);
  return p;
}

// The first and last eighth of the layers, and every third between.
bool takes_more(int layer, int layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

WeightType values_type(const Mix& mix, const MixedModel& m, int layer) {
  switch (mix.base) {
    case kQ5_K: return mix.size == 'M' && takes_more(layer, m.num_layers) ? kQ6_K : kQ5_K;
    case kQ4_K:
      if (mix.size == 'M') return takes_more(layer, m.num_layers) ? kQ6_K : kQ4_K;
      return layer < 4 ? kQ5_K : kQ4_K;
    case kQ3_K: return mix.size == 'S' ? kQ3_K : layer < 2 ? kQ5_K : kQ4_K;
    case kQ2_K: return m.heads_per_kv >= 4 ? kQ4_K : kQ3_K;
    case kIQ4_NL: case kIQ4_XS: return m.heads_per_kv >= 4 ? kQ5_K : mix.base;
    default: return mix.base;
  }
}

WeightType down_type(const Mix& mix, const MixedModel& m, int layer) {
  const bool early = layer < m.num_layers / 8;
  switch (mix.base) {
    case kQ5_K: return mix.size == 'M' && takes_more(layer, m.num_layers) ? kQ6_K : kQ5_K;
    case kQ4_K:
      if (mix.size == 'M') return takes_more(layer, m.num_layers) ? kQ6_K : kQ4_K;
      return early ? kQ5_K : kQ4_K;
    case kQ3_K: return mix.size == 'S' ? kQ3_K : layer < m.num_layers / 16 ? kQ5_K : kQ4_K;
    case kQ2_K: return kQ3_K;
    case kQ4_0: return m.calibrated && early ? kQ4_1 : kQ4_0;
    case kQ5_0: return m.calibrated && early ? kQ5_1 : kQ5_0;
    case kIQ4_NL: case kIQ4_XS: return !m.calibrated && early ? kQ5_K : mix.base;
    default: return mix.base;
  }
}

WeightType output_type(const Mix& mix) { return mix.base == kQ8_0 ? kQ8_0 : kQ6_K; }

bool is_head(std::string_view role, const MixedModel& m) { return role == "output" || (role == "token_embd" && !m.has_output); }

enum class Part { kNone, kAttention, kUp, kDown };
Part part_of(std::string_view role) {
  if (role == "attn_q" || role == "attn_k" || role == "attn_v" || role == "attn_qkv" || role == "attn_output") return Part::kAttention;
  if (role == "ffn_gate" || role == "ffn_up") return Part::kUp;
  return role == "ffn_down" ? Part::kDown : Part::kNone;
}

// What a spare byte goes to, the dearest first.
struct Step {
  Part part;
  WeightType to;
};
constexpr Step kSteps[] = {{Part::kAttention, kQ4_K}, {Part::kDown, kQ4_K}, {Part::kUp, kQ4_K}, {Part::kDown, kQ5_K}, {Part::kDown, kQ6_K}, {Part::kAttention, kQ6_K}, {Part::kUp, kQ6_K}};

int64_t bytes_of(const MixedTensor& t, WeightType type) { return t.rows * int64_t(row_bytes(*find_format(type), size_t(t.cols))); }

}  // namespace

const Mix* find_mix(std::string_view name) {
  for (const Mix& m : kMixes)
    if (name == m.name) return &m;
  return nullptr;
}

std::string mix_names() {
  std::string names;
  for (const Mix& m : kMixes) names += std::string(names.empty() ? "" : ", ") + m.name;
  return names;
}

WeightType fitting_type(WeightType type, int64_t cols) {
  const auto fits = [&](WeightType t) { return cols % find_format(t)->block_elements == 0; };
  if (fits(type)) return type;
  WeightType next = kF16;
  switch (type) {
    case kQ2_K: case kQ3_K: next = kQ4_0; break;
    case kQ4_K: next = kQ5_0; break;
    case kQ5_K: next = kQ5_1; break;
    case kQ6_K: next = kQ8_0; break;
    case kIQ4_XS: next = kIQ4_NL; break;
    default: break;
  }
  return fits(next) ? next : kF16;
}

std::optional<WeightType> mixed_type(const Mix& mix, const MixedModel& model, std::string_view name, int num_dims, int64_t cols) {
  if (num_dims < 2 || !name.ends_with(".weight") || name.find("_norm") != std::string_view::npos) return std::nullopt;
  const Place p = place_of(name);
  if (find_format(mix.base)->shape == nullptr) return mix.base;
  WeightType type = mix.base;
  if (is_head(p.role, model)) type = output_type(mix);
  else if (p.role == "attn_v" || p.role == "attn_qkv") type = values_type(mix, model, p.layer);
  else if (p.role == "ffn_down") type = down_type(mix, model, p.layer);
  else if (p.role == "attn_output" && mix.base == kQ2_K) type = kQ3_K;
  else if (p.role == "attn_output" && mix.base == kQ3_K && mix.size == 'M') type = kQ4_K;
  return fitting_type(type, cols);
}

void spend_spare(const Mix& mix, const MixedModel& model, std::span<MixedTensor> tensors) {
  if (mix.base != kQ4_K && mix.base != kQ3_K && mix.base != kQ2_K) return;
  int64_t spare = 0;
  for (MixedTensor& t : tensors)
    if (is_head(place_of(t.name).role, model) && t.type == kQ8_0) {
      const WeightType less = fitting_type(kQ5_K, t.cols);
      spare += bytes_of(t, t.type) - bytes_of(t, less);
      t.type = less;
    }
  for (const Step& step : kSteps)
    for (MixedTensor& t : tensors) {
      if (part_of(place_of(t.name).role) != step.part) continue;
      const WeightType type = fitting_type(step.to, t.cols);
      const int64_t more = bytes_of(t, type) - bytes_of(t, t.type);
      if (more <= 0 || more > spare) continue;
      t.type = type;
      spare -= more;
    }
}

}  // namespace sluice::quant
