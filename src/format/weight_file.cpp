#include "format/weight_file.h"

#include <filesystem>

namespace sluice::format {
namespace {

bool inside(std::span<const uint8_t> part, std::span<const uint8_t> whole) {
  return !part.empty() && part.data() >= whole.data() && part.data() < whole.data() + whole.size();
}

}  // namespace

WeightFile::WeightFile(Metadata metadata, std::vector<TensorEntry> tensors, std::shared_ptr<const void> owner)
    : WeightFile(std::move(metadata), std::move(tensors), {}, std::move(owner)) {}

WeightFile::WeightFile(Metadata metadata, std::vector<TensorEntry> tensors, std::vector<Mapping> mappings, std::shared_ptr<const void> owner)
    : mappings_(std::move(mappings)), owner_(std::move(owner)), metadata_(std::move(metadata)), tensors_(std::move(tensors)) {
  for (size_t i = 0; i < tensors_.size(); ++i) SLUICE_CHECK(by_name_.emplace(tensors_[i].name, i).second);
}

uint64_t WeightFile::file_bytes() const {
  uint64_t bytes = 0;
  for (const Mapping& m : mappings_) bytes += m.bytes().size();
  if (mappings_.empty())
    for (const TensorEntry& t : tensors_) bytes += t.file_bytes();
  return bytes;
}

void WeightFile::keep_only(const TensorEntry* tensor) const {
  for (const Mapping& m : mappings_) m.keep_only(tensor && inside(tensor->bytes, m.bytes()) ? tensor->bytes : std::span<const uint8_t>());
}

const TensorEntry* WeightFile::find(std::string_view name) const {
  auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : &tensors_[it->second];
}

Result<std::shared_ptr<const WeightFile>> open_model(const std::string& path) {
  std::error_code ec;
  return std::filesystem::is_directory(path, ec) ? open_hf_folder(path) : open_gguf(path);
}

}  // namespace sluice::format
