#include "format/hf_shards.h"

#include <filesystem>
#include <set>

#include "format/hf_json.h"
#include "format/shown.h"

namespace sluice::format {
namespace {

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";

// A name within the folder: the index comes with the model and must not reach beyond.
bool plain_name(const std::string& name) {
  return !name.empty() && name.size() <= 255 && name.find('/') == std::string::npos && name.find('\0') == std::string::npos && name[0] != '.';
}

Status add_file(const std::string& folder, const std::string& name, HfShards& out) {
  SLUICE_ASSIGN(Mapping mapping, Mapping::open(folder + "/" + name));
  auto file = parse_safetensors(mapping.bytes());
  if (!file.ok()) return Error{file.error().code, name + ": " + file.error().message, {}};
  for (StTensor& t : file->tensors) {
    const std::string tensor = t.name;
    if (!out.tensors.emplace(tensor, std::move(t)).second) return bad_file(name + ": " + shown(tensor) + " stands in another file too");
  }
  out.mappings.push_back(std::move(mapping));
  return {};
}

}  // namespace

Result<HfShards> open_shards(const std::string& folder) {
  HfShards out;
  std::error_code ec;
  const std::string index_path = folder + "/" + kIndex;
  if (!std::filesystem::exists(index_path, ec)) {
    SLUICE_TRY(add_file(folder, kSingle, out));
    return out;
  }
  SLUICE_ASSIGN(const Json index, read_json(index_path, kMaxIndexBytes));
  const Json* map = find_field(index, "weight_map");
  if (!map || !map->is_object()) return bad_file(std::string(kIndex) + ": weight_map is missing");
  std::set<std::string> files;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !plain_name(file.get_ref<const std::string&>()))
      return bad_file(std::string(kIndex) + ": " + shown(tensor) + ": no name of a file in the folder");
    files.insert(file.get<std::string>());
    if (files.size() > kMaxShards) return bad_file(std::string(kIndex) + ": more than " + std::to_string(kMaxShards) + " files");
  }
  for (const std::string& file : files) SLUICE_TRY(add_file(folder, file, out));
  for (const auto& [tensor, file] : map->items())
    if (!out.find(tensor)) return bad_file(shown(tensor) + ": the index names it, and no file has it");
  return out;
}

}  // namespace sluice::format
