// JSON files of a model folder: bounded reading, and fields with errors that name them. Exceptions of the library stay here.
#pragma once
#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "base/result.h"

namespace sluice::format {

using Json = nlohmann::json;

constexpr uint64_t kMaxConfigBytes = uint64_t{4} << 20, kMaxIndexBytes = uint64_t{64} << 20, kMaxTokenizerBytes = uint64_t{256} << 20;

// A whole file as one JSON object. Errors: kNotFound, kIo; kBadFile: over max_bytes, not JSON, or no object.
Result<Json> read_json(const std::string& path, uint64_t max_bytes);
// Written under another name first. Errors: kIo.
Status write_json(const std::string& path, const Json& json);
Status write_text(const std::string& path, const std::string& text);

// A field that is there and not null; else nullptr. `object` may be anything.
const Json* find_field(const Json& object, const char* key);
// Errors: kBadFile naming the key: missing, of another type, or outside [min, max].
Result<int64_t> integer_field(const Json& object, const char* key, int64_t min, int64_t max);
Result<int64_t> integer_field_or(const Json& object, const char* key, int64_t fallback, int64_t min, int64_t max);
Result<double> number_field_or(const Json& object, const char* key, double fallback);
Result<bool> flag_field_or(const Json& object, const char* key, bool fallback);
std::string string_field_or(const Json& object, const char* key, std::string fallback);

}  // namespace sluice::format
