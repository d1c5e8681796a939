// FP8 e4m3 with scales that multiply: weight_scale (one, or one a row) or weight_scale_inv (a grid of blocks, by its name the
// inverse, by its use not). Scales of inputs are left aside: inputs stay floats here.
#include "format/hf_packing.h"

namespace sluice::format {
namespace {

bool reads(const Json& config) {
  const std::string method = string_field_or(config, "quant_method", "");
  return method == "fp8" || method == "fbgemm_fp8";
}

Result<std::optional<TensorEntry>> read(const Json& config, const HfModule& module) {
  const StTensor* weight = module.shards.find(module.name + ".weight");
  if (!weight || weight->dtype != StDtype::kF8E4M3) return std::optional<TensorEntry>();
  module.find("weight");
  const StTensor* scale = module.find("weight_scale_inv");
  if (!scale) scale = module.find("weight_scale");
  if (!scale) return missing_part(module, "weight_scale");
  int64_t block[2] = {128, 128};
  if (const Json* size = find_field(config, "weight_block_size")) {
    for (size_t i = 0; i < 2; ++i) {
      if (!size->is_array() || size->size() != 2 || !(*size)[i].is_number_integer() || (*size)[i] < 1 || (*size)[i] > (1 << 24))
        return bad_file("quantization_config.weight_block_size: two positive numbers were expected");
      block[i] = (*size)[i].get<int64_t>();
    }
  }
  SLUICE_ASSIGN(TensorEntry t, fp8_matrix(*weight, *scale, block[0], block[1]));
  return std::optional<TensorEntry>(std::move(t));
}

}  // namespace

extern const HfPacking packing_fp8{"fp8", reads, read};

}  // namespace sluice::format
