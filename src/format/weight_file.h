// WeightFile: validated named tensors and metadata over a mapping (or over memory, see its constructor). Every count, size and offset was checked against the
// file before this exists, so a TensorEntry's bytes can be read without care. Immutable; any thread.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
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
  uint32_t type_id = 0;                          // ggml type id
  const quant::WeightFormat* weight_format = nullptr;  // nullptr: a type that Sluice does not know (not loadable)
  std::vector<int64_t> dims;                     // fastest first; each >= 1
  std::span<const uint8_t> bytes;                // empty when weight_format is nullptr

  int64_t cols() const { return dims[0]; }
  int64_t rows() const {
    int64_t n = 1;
    for (size_t i = 1; i < dims.size(); ++i) n *= dims[i];
    return n;
  }
  int64_t elements() const { return cols() * rows(); }
};

class WeightFile {
 public:
  // One that was never a file: tensors with distinct names, whose bytes lie in memory that `owner` keeps.
  WeightFile(Metadata metadata, std::vector<TensorEntry> tensors, std::shared_ptr<const void> owner);

  const Metadata& metadata() const { return metadata_; }
  const std::vector<TensorEntry>& tensors() const { return tensors_; }
  const TensorEntry* find(std::string_view name) const;
  uint64_t file_bytes() const;
  // Of a file: has this tensor (null: none) in memory and gives the pages of all others back, see Mapping.
  void keep_only(const TensorEntry* tensor) const;

 private:
  friend class GgufReader;
  explicit WeightFile(Mapping mapping) : mapping_(std::move(mapping)) {}
  std::optional<Mapping> mapping_;
  std::shared_ptr<const void> owner_;
  Metadata metadata_;
  std::vector<TensorEntry> tensors_;
  std::unordered_map<std::string_view, size_t> by_name_;
};

// Opens a GGUF file (versions 2 and 3, little-endian, one part).
// Errors: kBadFile in one line naming the field and the limit; kNotFound; kIo.
Result<std::shared_ptr<const WeightFile>> open_gguf(const std::string& path);

}  // namespace sluice::format
