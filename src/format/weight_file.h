// WeightFile: validated named tensors and metadata over mappings (or over memory, see its constructors). Every count, size and offset was
// checked against the files before this exists, so a TensorEntry's bytes can be read without care. Immutable; any thread.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "format/mapping.h"
#include "format/metadata.h"
#include "quant/weight_format.h"

namespace sluice::format {

struct TensorEntry {
  std::string name;
  uint32_t type_id = 0;                          // ggml type id; of layouts that GGUF lacks, the WeightType
  const quant::WeightFormat* weight_format = nullptr;  // nullptr: a type that Sluice does not know (not loadable)
  std::vector<int64_t> dims;                     // fastest first; each >= 1
  std::span<const uint8_t> bytes;                // empty when weight_format is nullptr, or where make_rows is there
  // Rows that the file has in another order or layout: writes rows [begin, end) as weight_format has them. Any thread.
  std::function<void(int64_t begin, int64_t end, uint8_t* out)> make_rows;
  uint64_t made_from_bytes = 0;                  // of the file, where make_rows is there
  // Column i of the rows is the model's input (*input_order)[i]; null: i. Of matrices quantised in order of activation.
  std::shared_ptr<const std::vector<int32_t>> input_order;
  // Of fp8: how many inputs of a row share a scale, where that is known to be more than the format's unit; else 0.
  int64_t scale_cols = 0;

  uint64_t file_bytes() const { return make_rows ? made_from_bytes : bytes.size(); }

  int64_t cols() const { return dims[0]; }
  int64_t rows() const {
    int64_t n = 1;
    for (size_t i = 1; i < dims.size(); ++i) n *= dims[i];
    return n;
  }
  int64_t elements() const { return cols() * rows(); }
};

// Rows [begin, end) in the layout of weight_format, columns as stored: out has room for quant::row_bytes each.
void read_rows(const TensorEntry& tensor, int64_t begin, int64_t end, uint8_t* out);
// Rows [begin, end) as floats with columns in the model's order, whatever the layout: [end - begin, cols].
void decode_rows(const TensorEntry& tensor, int64_t begin, int64_t end, float* out);

class WeightFile {
 public:
  // One that was never a file: tensors with distinct names, whose bytes lie in memory that `owner` keeps.
  WeightFile(Metadata metadata, std::vector<TensorEntry> tensors, std::shared_ptr<const void> owner);
  // One of several files: tensors with distinct names, whose bytes lie in the mappings or in memory that `owner` keeps.
  WeightFile(Metadata metadata, std::vector<TensorEntry> tensors, std::vector<Mapping> mappings, std::shared_ptr<const void> owner);

  const Metadata& metadata() const { return metadata_; }
  const std::vector<TensorEntry>& tensors() const { return tensors_; }
  const TensorEntry* find(std::string_view name) const;
  uint64_t file_bytes() const;
  // Of a file: has this tensor (null: none) in memory and gives the pages of all others back, see Mapping.
  void keep_only(const TensorEntry* tensor) const;

 private:
  friend class GgufReader;
  explicit WeightFile(Mapping mapping) { mappings_.push_back(std::move(mapping)); }
  std::vector<Mapping> mappings_;
  std::shared_ptr<const void> owner_;
  Metadata metadata_;
  std::vector<TensorEntry> tensors_;
  std::unordered_map<std::string_view, size_t> by_name_;
};

// Opens a GGUF file (versions 2 and 3, little-endian, one part).
// Errors: kBadFile in one line naming the field and the limit; kNotFound; kIo.
Result<std::shared_ptr<const WeightFile>> open_gguf(const std::string& path);

// Opens a folder of safetensors with config.json and tokenizer.json: the same names, shapes and metadata that a GGUF file of the
// model has. Errors: as open_gguf, and kUnsupported naming the field of config.json.
Result<std::shared_ptr<const WeightFile>> open_hf_folder(const std::string& path);

// Either, by what is there.
Result<std::shared_ptr<const WeightFile>> open_model(const std::string& path);

}  // namespace sluice::format
