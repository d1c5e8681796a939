// The tensors of a folder's safetensors files by name: model.safetensors, or the files that model.safetensors.index.json lists.
// Immutable once opened. Errors: kNotFound, kIo; kBadFile naming file, tensor and limit.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "format/mapping.h"
#include "format/safetensors.h"

namespace sluice::format {

constexpr size_t kMaxShards = 4096;

struct HfShards {
  std::vector<Mapping> mappings;
  std::map<std::string, StTensor> tensors;  // views into the mappings

  const StTensor* find(const std::string& name) const {
    const auto it = tensors.find(name);
    return it == tensors.end() ? nullptr : &it->second;
  }
};

Result<HfShards> open_shards(const std::string& folder);

}  // namespace sluice::format
