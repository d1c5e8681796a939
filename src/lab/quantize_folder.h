// sluice quantize to a folder of safetensors: floats, GPTQ, AWQ or FP8 in the layouts that other programs read. Matrices come from a
// source - rounding to nearest here, or a method that has looked at a calibration text - and are written one at a time.
// A folder without config.json is unfinished; killed at any moment, the same call goes on where it was, to the same bytes.
#pragma once
#include <optional>
#include <span>
#include <string>

#include "format/hf_layouts.h"
#include "lab/quantize.h"

namespace sluice::lab {

struct FolderType {
  enum Kind { kFloats, kGptq, kAwq, kFp8 } kind = kFloats;
  int bits = 16;                                              // of kGptq
  format::StDtype dtype = format::StDtype::kF16;              // of what stays floats
  format::Fp8Scales scales = format::Fp8Scales::kChannel;     // of kFp8
};
// f32, f16, bf16, gptq2 .. gptq8, awq4, fp8 (a scale a row), fp8_tensor, fp8_block. Nothing: no type of folders.
std::optional<FolderType> find_folder_type(const std::string& name);
std::string folder_type_names();

// Where quantised matrices come from, and how they are.
struct FolderMatrices {
  std::string method = "rtn";
  int group = 128;                 // of kGptq and kAwq; see format::common_group
  bool symmetric = true;           // of kGptq
  bool activation_order = false;   // of kGptq
  format::GroupedSource grouped;
  format::Fp8Source fp8;
  uint64_t fingerprint = 0;        // of all that decides the bytes
  std::shared_ptr<format::HfProgress> progress = std::make_shared<format::HfProgress>();  // what is written, while it is
};
// Rounding to nearest, grouped integers with a search for the scales. Errors of the sources: kBadFile naming an element that is not finite.
FolderMatrices rounded_matrices(const FolderType& type, int group, int threads, uint64_t fingerprint);
// tokens: of the calibration text.
uint64_t folder_fingerprint(const QuantizeOptions& options, const format::WeightFile& file, const std::string& method, int group, std::span<const int32_t> tokens);

// Writes metadata and tensors (the model's, or what a method made of them). Errors: as quantize.
Result<QuantizeReport> write_folder(const QuantizeOptions& options, const FolderType& type, const format::WeightFile& file,
                                    std::span<const format::TensorEntry> tensors, const FolderMatrices& matrices);
// The whole command for a type of folders, by rounding.
Result<QuantizeReport> quantize_folder(const QuantizeOptions& options, const FolderType& type);

}  // namespace sluice::lab
