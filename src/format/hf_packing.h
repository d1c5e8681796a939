// HfPacking: how one kind of quantised checkpoint stores a matrix, by config.json's quantization_config. packings/NAME.cpp defines
// `packing_NAME`; the build lists them. A matrix becomes a TensorEntry that makes rows of quant/side_blocks.h out of the mapping as
// they are read: no second copy of the matrix, and no float of it. Pure; any thread.
// Errors: kBadFile naming the tensor and what its shape should be; kUnsupported naming the field.
#pragma once
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "format/hf_json.h"
#include "format/hf_shards.h"
#include "format/weight_file.h"

namespace sluice::format {

constexpr int64_t kMaxModuleDim = int64_t{1} << 24;

struct HfModule {
  const HfShards& shards;
  std::string name;             // "model.layers.0.self_attn.q_proj"
  std::set<std::string>& used;  // names of tensors that were read

  // The tensor under this last part of the name, or nullptr; it counts as read.
  const StTensor* find(const char* part) const {
    const StTensor* t = shards.find(name + "." + part);
    if (t) used.insert(t->name);
    return t;
  }
};

struct HfPacking {
  const char* name;
  bool (*reads)(const Json& quantization_config);
  // Nothing: this module is stored as plain floats.
  Result<std::optional<TensorEntry>> (*read)(const Json& quantization_config, const HfModule& module);
};
std::span<const HfPacking* const> packings_table();

// Checks shared by packings. `wanted`: in words, for the message.
Error wrong_shape(const StTensor& t, const std::string& wanted);
Error missing_part(const HfModule& module, const char* part);
bool has_shape(const StTensor& t, std::initializer_list<int64_t> shape);
// Element i of a tensor of F32, F16 or BF16 (others: NaN), or of I32; i is within it.
float float_at(const StTensor& t, int64_t i);
uint32_t word_at(const StTensor& t, int64_t i);
bool is_float(const StTensor& t);
// Field `bits` of a stream of them, at element i: least significant bits first, 32-bit words at stride `words`.
uint32_t packed_at(const StTensor& t, int64_t first_word, int64_t stride, int bits, int64_t i);

// FP8 with its scales, whatever their granularity: a scalar, [N], [N, 1], or a grid of blocks of block_rows x block_cols.
Result<TensorEntry> fp8_matrix(const StTensor& weight, const StTensor& scale, int64_t block_rows, int64_t block_cols);

}  // namespace sluice::format
