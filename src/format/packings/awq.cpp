// AWQ ("gemm"): 4 bits along outputs, [K, N / 8], eight of them to a word in an order of their own; zeros alike, [G, N / 8], as
// they are; scales [G, N].
#include "format/grouped_rows.h"
#include "format/hf_packing.h"
#include "format/packings/awq_order.h"

namespace sluice::format {
namespace {

bool reads(const Json& config) { return string_field_or(config, "quant_method", "") == "awq"; }

uint32_t nibble_at(const StTensor& t, int64_t row, int64_t words, int64_t n) { return (word_at(t, row * words + n / 8) >> (4 * kAwqPlace[n % 8])) & 15; }

Result<std::optional<TensorEntry>> read(const Json& config, const HfModule& module) {
  const StTensor* codes = module.find("qweight");
  if (!codes) return std::optional<TensorEntry>();
  const StTensor *zeros = module.find("qzeros"), *scales = module.find("scales");
  if (!zeros || !scales) return missing_part(module, zeros ? "scales" : "qzeros");
  const char* const bits_key = find_field(config, "bits") ? "bits" : "w_bit";
  const char* const group_key = find_field(config, "group_size") ? "group_size" : "q_group_size";
  SLUICE_ASSIGN(const int64_t bits, integer_field_or(config, bits_key, 4, 1, 16));
  SLUICE_ASSIGN(int64_t group, integer_field_or(config, group_key, 128, -1, 1 << 24));
  const std::string version = string_field_or(config, "version", "gemm");
  if (bits != 4) return Error{ErrorCode::kUnsupported, "quantization_config.bits: AWQ of " + std::to_string(bits) + " bits is not supported (4 is)", {}};
  if (version != "gemm" && version != "GEMM") return Error{ErrorCode::kUnsupported, "quantization_config.version: only gemm is supported", {}};
  GroupedShape s;
  if (codes->dtype != StDtype::kI32 || codes->shape.size() != 2 || codes->elements() < 1 || codes->shape[0] > kMaxModuleDim) return wrong_shape(*codes, "I32 [inputs, outputs / 8]");
  const int64_t words = codes->shape[1];
  s.cols = codes->shape[0];
  s.rows = words * 8;
  if (group < 1) group = s.cols;
  s.groups = (s.cols + group - 1) / group;
  if (!is_float(*scales) || !has_shape(*scales, {s.groups, s.rows})) return wrong_shape(*scales, "halves [groups, outputs]");
  if (zeros->dtype != StDtype::kI32 || !has_shape(*zeros, {s.groups, words})) return wrong_shape(*zeros, "I32 [groups, outputs / 8]");
  s.group_of.resize(size_t(s.cols));
  for (int64_t k = 0; k < s.cols; ++k) s.group_of[size_t(k)] = int32_t(k / group);
  const uint64_t bytes = codes->bytes.size() + zeros->bytes.size() + scales->bytes.size();
  SLUICE_ASSIGN(TensorEntry t, grouped_entry(module.name, std::move(s), bytes,
      [c = *codes, words](int64_t n, int64_t k) { return nibble_at(c, k, words, n); },
      [z = *zeros, words](int64_t n, int64_t g) { return nibble_at(z, g, words, n); },
      [f = *scales, words](int64_t n, int64_t g) { return float_at(f, g * words * 8 + n); }));
  return std::optional<TensorEntry>(std::move(t));
}

}  // namespace

extern const HfPacking packing_awq{"awq", reads, read};

}  // namespace sluice::format
