// GPTQ: qweight packs along inputs, [K * bits / 32, N]; qzeros along outputs, [G, N * bits / 32]; scales [G, N]; g_idx [K].
// The first version of the format stores zeros less 1, wrapped to their bits.
#include "format/grouped_rows.h"
#include "format/hf_packing.h"
#include "format/shown.h"

namespace sluice::format {
namespace {

bool reads(const Json& config) { return string_field_or(config, "quant_method", "") == "gptq"; }

// The group of every input: as listed, or by its number.
Status read_groups(const Json& config, const HfModule& module, const StTensor& scales, GroupedShape& s) {
  s.groups = scales.shape[0];
  s.group_of.resize(size_t(s.cols));
  if (const StTensor* list = module.find("g_idx")) {
    if (list->dtype != StDtype::kI32 || !has_shape(*list, {s.cols})) return wrong_shape(*list, "I32 [" + std::to_string(s.cols) + "]");
    for (int64_t k = 0; k < s.cols; ++k) s.group_of[size_t(k)] = int32_t(word_at(*list, k));
    return {};
  }
  SLUICE_ASSIGN(int64_t group, integer_field(config, "group_size", -1, 1 << 24));
  if (group < 1) group = s.cols;
  if (s.groups != (s.cols + group - 1) / group) return wrong_shape(scales, "a row for every " + std::to_string(group) + " of " + std::to_string(s.cols) + " inputs");
  for (int64_t k = 0; k < s.cols; ++k) s.group_of[size_t(k)] = int32_t(k / group);
  return {};
}

Result<std::optional<TensorEntry>> read(const Json& config, const HfModule& module) {
  const StTensor* codes = module.find("qweight");
  if (!codes) return std::optional<TensorEntry>();
  const StTensor *zeros = module.find("qzeros"), *scales = module.find("scales");
  if (!zeros || !scales) return missing_part(module, zeros ? "scales" : "qzeros");
  // Modules may have bits of their own, in `dynamic`.
  if (find_field(config, "dynamic") && !find_field(config, "dynamic")->empty())
    return Error{ErrorCode::kUnsupported, "quantization_config.dynamic: modules of their own are not supported", {}};
  SLUICE_ASSIGN(const int64_t bits, integer_field(config, "bits", 2, 8));
  GroupedShape s;
  s.bits = int(bits);
  if (codes->dtype != StDtype::kI32 || codes->shape.size() != 2 || codes->elements() < 1 || codes->shape[0] > kMaxModuleDim || codes->shape[0] * 32 % bits != 0)
    return wrong_shape(*codes, "I32 [inputs * bits / 32, outputs]");
  s.cols = codes->shape[0] * 32 / bits;
  s.rows = codes->shape[1];
  if (!is_float(*scales) || scales->shape.size() != 2 || scales->elements() < 1 || scales->shape[1] != s.rows)
    return wrong_shape(*scales, "halves [groups, " + std::to_string(s.rows) + "]");
  if (s.rows * bits % 32 != 0 || zeros->dtype != StDtype::kI32 || !has_shape(*zeros, {scales->shape[0], s.rows * bits / 32}))
    return wrong_shape(*zeros, "I32 [groups, outputs * bits / 32]");
  SLUICE_TRY(read_groups(config, module, *scales, s));
  const bool less_one = string_field_or(config, "checkpoint_format", "gptq") != "gptq_v2";
  const int64_t rows = s.rows, zero_words = zeros->shape[1];
  const uint32_t mask = (1u << bits) - 1;
  const uint64_t bytes = codes->bytes.size() + zeros->bytes.size() + scales->bytes.size();
  SLUICE_ASSIGN(TensorEntry t, grouped_entry(module.name, std::move(s), bytes,
      [c = *codes, rows, bits](int64_t n, int64_t k) { return packed_at(c, n, rows, int(bits), k); },
      [z = *zeros, zero_words, bits, mask, less_one](int64_t n, int64_t g) { return (packed_at(z, g * zero_words, 1, int(bits), n) + (less_one ? 1 : 0)) & mask; },
      [f = *scales, rows](int64_t n, int64_t g) { return float_at(f, g * rows + n); }));
  return std::optional<TensorEntry>(std::move(t));
}

}  // namespace

extern const HfPacking packing_gptq{"gptq", reads, read};

}  // namespace sluice::format
