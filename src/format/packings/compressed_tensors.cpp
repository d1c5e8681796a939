// compressed-tensors: weight_packed (integers along inputs, least significant bits first, codes above 0), weight as I8, or as FP8;
// scales in weight_scale, [N, G], [N, 1] or a grid; zeros packed along outputs. Which one a module is, its tensors say.
#include "format/grouped_rows.h"
#include "format/hf_packing.h"

namespace sluice::format {
namespace {

bool reads(const Json& config) { return string_field_or(config, "quant_method", "") == "compressed-tensors"; }

// The weights' arguments of the one group of the configuration. Several groups may differ, and are not told apart here.
Result<const Json*> weight_args(const Json& config) {
  const Json* groups = find_field(config, "config_groups");
  if (!groups || !groups->is_object() || groups->size() != 1)
    return Error{ErrorCode::kUnsupported, "quantization_config.config_groups: one group is supported", {}};
  const Json* weights = find_field(*groups->begin(), "weights");
  if (!weights) return bad_file("quantization_config.config_groups: weights is missing");
  return weights;
}

// Groups by the columns of the scales, or as listed.
Status read_groups(const HfModule& module, const StTensor& scale, GroupedShape& s) {
  if (!is_float(scale) || scale.shape.size() != 2 || scale.shape[0] != s.rows || scale.shape[1] < 1) return wrong_shape(scale, "floats [outputs, groups]");
  s.groups = scale.shape[1];
  s.group_of.resize(size_t(s.cols));
  if (const StTensor* list = module.find("weight_g_idx"); list && list->elements() > 0) {
    if (list->dtype != StDtype::kI32 || !has_shape(*list, {s.cols})) return wrong_shape(*list, "I32 [inputs]");
    for (int64_t k = 0; k < s.cols; ++k) s.group_of[size_t(k)] = int32_t(word_at(*list, k));
    return {};
  }
  if (s.cols % s.groups != 0) return wrong_shape(scale, "groups that divide " + std::to_string(s.cols) + " inputs");
  for (int64_t k = 0; k < s.cols; ++k) s.group_of[size_t(k)] = int32_t(k / (s.cols / s.groups));
  return {};
}

Result<TensorEntry> read_packed(const Json& args, const HfModule& module, const StTensor& codes) {
  const StTensor *scale = module.find("weight_scale"), *size = module.find("weight_shape");
  if (!scale || !size) return missing_part(module, scale ? "weight_shape" : "weight_scale");
  SLUICE_ASSIGN(const int64_t bits, integer_field(args, "num_bits", 2, 8));
  if (size->dtype != StDtype::kI64 || size->elements() != 2) {
    if (size->dtype != StDtype::kI32 || size->elements() != 2) return wrong_shape(*size, "I64 [2]");
  }
  const int step = size->dtype == StDtype::kI64 ? 2 : 1;
  GroupedShape s;
  s.bits = int(bits);
  s.rows = word_at(*size, 0);
  s.cols = word_at(*size, step);
  if (s.rows < 1 || s.cols < 1 || s.rows > kMaxModuleDim || s.cols > kMaxModuleDim)
    return bad_file(module.name + ".weight_shape: outside 1.." + std::to_string(kMaxModuleDim));
  const int64_t words = (s.cols * bits + 31) / 32, zero_words = (s.rows * bits + 31) / 32;
  if (codes.dtype != StDtype::kI32 || !has_shape(codes, {s.rows, words})) return wrong_shape(codes, "I32 [outputs, inputs * bits / 32]");
  SLUICE_TRY(read_groups(module, *scale, s));
  const StTensor* zeros = module.find("weight_zero_point");
  if (zeros && (zeros->dtype != StDtype::kI32 || !has_shape(*zeros, {zero_words, s.groups}))) return wrong_shape(*zeros, "I32 [outputs * bits / 32, groups]");
  const int64_t groups = s.groups;
  const StTensor packed_zeros = zeros ? *zeros : StTensor{};
  const uint32_t middle = 1u << (bits - 1);
  return grouped_entry(module.name, std::move(s), codes.bytes.size() + scale->bytes.size() + packed_zeros.bytes.size(),
      [c = codes, words, bits](int64_t n, int64_t k) { return packed_at(c, n * words, 1, int(bits), k); },
      [z = packed_zeros, groups, bits, middle](int64_t n, int64_t g) { return z.bytes.empty() ? middle : packed_at(z, g, groups, int(bits), n); },
      [f = *scale, groups](int64_t n, int64_t g) { return float_at(f, n * groups + g); });
}

Result<TensorEntry> read_int8(const HfModule& module, const StTensor& codes) {
  const StTensor *scale = module.find("weight_scale"), *zeros = module.find("weight_zero_point");
  if (!scale) return missing_part(module, "weight_scale");
  if (codes.shape.size() != 2 || codes.elements() < 1 || codes.shape[1] > kMaxModuleDim) return wrong_shape(codes, "I8 [outputs, inputs]");
  GroupedShape s;
  s.bits = 8;
  s.rows = codes.shape[0];
  s.cols = codes.shape[1];
  StTensor scales = *scale;
  if (scales.elements() == 1) scales.shape = {1, 1};
  const bool one = scales.elements() == 1;  // for the whole matrix
  if (one && is_float(scales)) {
    s.groups = 1;
    s.group_of.assign(size_t(s.cols), 0);
  } else {
    SLUICE_TRY(read_groups(module, scales, s));
  }
  const int64_t cols = s.cols, groups = s.groups;
  if (zeros && (zeros->dtype != StDtype::kI8 || zeros->elements() != scales.elements())) return wrong_shape(*zeros, "I8, as many as scales");
  const StTensor z = zeros ? *zeros : StTensor{};
  return grouped_entry(module.name, std::move(s), codes.bytes.size() + scales.bytes.size(),
      [c = codes, cols](int64_t n, int64_t k) { return uint32_t(c.bytes[size_t(n * cols + k)] ^ 0x80); },
      [z, one, groups](int64_t n, int64_t g) { return z.bytes.empty() ? 128u : uint32_t(z.bytes[size_t(one ? 0 : n * groups + g)] ^ 0x80); },
      [scales, one, groups](int64_t n, int64_t g) { return float_at(scales, one ? 0 : n * groups + g); });
}

Result<std::optional<TensorEntry>> read(const Json& config, const HfModule& module) {
  const StTensor *packed = module.find("weight_packed"), *weight = module.shards.find(module.name + ".weight");
  const bool int8 = weight && weight->dtype == StDtype::kI8, fp8 = weight && weight->dtype == StDtype::kF8E4M3;
  if (!packed && !int8 && !fp8) return std::optional<TensorEntry>();
  SLUICE_ASSIGN(const Json* args, weight_args(config));
  if (packed) {
    SLUICE_ASSIGN(TensorEntry t, read_packed(*args, module, *packed));
    return std::optional<TensorEntry>(std::move(t));
  }
  module.find("weight");
  if (int8) {
    SLUICE_ASSIGN(TensorEntry t, read_int8(module, *weight));
    return std::optional<TensorEntry>(std::move(t));
  }
  const StTensor* scale = module.find("weight_scale");
  if (!scale) return missing_part(module, "weight_scale");
  int64_t block[2] = {128, 128};
  if (const Json* size = find_field(*args, "block_structure"); size && size->is_array() && size->size() == 2)
    for (size_t i = 0; i < 2; ++i) block[i] = (*size)[i].is_number_integer() && (*size)[i] > 0 && (*size)[i] < (1 << 24) ? (*size)[i].get<int64_t>() : 0;
  SLUICE_ASSIGN(TensorEntry t, fp8_matrix(*weight, *scale, block[0], block[1]));
  return std::optional<TensorEntry>(std::move(t));
}

}  // namespace

extern const HfPacking packing_compressed_tensors{"compressed-tensors", reads, read};

}  // namespace sluice::format
