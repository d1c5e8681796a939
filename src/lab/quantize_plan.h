// What a quantisation will do, decided before any of it: the type of every tensor, the metadata and the layout of the file.
#pragma once
#include <memory>

#include "format/gguf_writer.h"
#include "format/weight_file.h"
#include "lab/quantize.h"

namespace sluice::lab {

struct QuantizePlan {
  std::shared_ptr<const format::WeightFile> file;
  std::string method;
  std::vector<format::TensorEntry> tensors;   // of the output, in the input's order; bytes are empty
  format::Metadata metadata;
  format::GgufLayout layout;
  std::vector<bool> copied;                   // the input's bytes as they are
  int64_t weights = 0;                        // in tensors that are not copied
};

// Errors: as quantize, before any tensor's values are looked at.
Result<QuantizePlan> plan_quantization(const QuantizeOptions& options);
// Windows of the calibration text: a whole number of them, each with BOS in place of its first token where the model wants one.
Result<std::vector<int32_t>> calibration_tokens(const QuantizeOptions& options, const format::WeightFile& file);
// Of the input, and of how its calibration text is cut and read.
uint64_t input_fingerprint(const QuantizeOptions& options, const format::WeightFile& file);
// Of all that decides the output's bytes.
uint64_t fingerprint_of(const QuantizeOptions& options, const QuantizePlan& plan, const std::vector<int32_t>& tokens);

}  // namespace sluice::lab
