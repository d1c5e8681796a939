#include "format/hf_json.h"

#include <cmath>

#include "format/mapping.h"
#include "format/new_file.h"

namespace sluice::format {

Result<Json> read_json(const std::string& path, uint64_t max_bytes) {
  SLUICE_ASSIGN(const Mapping mapping, Mapping::open(path));
  const auto bytes = mapping.bytes();
  if (bytes.size() > max_bytes) return bad_file(path + ": " + std::to_string(bytes.size()) + " bytes, the most is " + std::to_string(max_bytes));
  Json json = Json::parse(bytes.begin(), bytes.end(), nullptr, false);
  if (!json.is_object()) return bad_file(path + ": not a JSON object");
  return json;
}

Status write_text(const std::string& path, const std::string& text) {
  NewFile file(path);
  file.write(text);
  return file.finish();
}

Status write_json(const std::string& path, const Json& json) {
  return write_text(path, json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

const Json* find_field(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

Result<int64_t> integer_field(const Json& object, const char* key, int64_t min, int64_t max) {
  const Json* v = find_field(object, key);
  if (!v) return bad_file(std::string(key) + ": missing");
  // Beyond 2^63 an unsigned number would come out negative.
  if (!v->is_number_integer() || (v->is_number_unsigned() && v->get<uint64_t>() > uint64_t(INT64_MAX)))
    return bad_file(std::string(key) + ": an integer was expected");
  const auto i = v->get<int64_t>();
  if (i < min || i > max) return bad_file(std::string(key) + ": " + std::to_string(i) + " is outside " + std::to_string(min) + ".." + std::to_string(max));
  return i;
}

Result<int64_t> integer_field_or(const Json& object, const char* key, int64_t fallback, int64_t min, int64_t max) {
  if (!find_field(object, key)) return fallback;
  return integer_field(object, key, min, max);
}

Result<double> number_field_or(const Json& object, const char* key, double fallback) {
  const Json* v = find_field(object, key);
  if (!v) return fallback;
  if (!v->is_number()) return bad_file(std::string(key) + ": a number was expected");
  const auto d = v->get<double>();
  if (!std::isfinite(d)) return bad_file(std::string(key) + ": not finite");
  return d;
}

Result<bool> flag_field_or(const Json& object, const char* key, bool fallback) {
  const Json* v = find_field(object, key);
  if (!v) return fallback;
  if (!v->is_boolean()) return bad_file(std::string(key) + ": true or false was expected");
  return v->get<bool>();
}

std::string string_field_or(const Json& object, const char* key, std::string fallback) {
  const Json* v = find_field(object, key);
  return v && v->is_string() ? v->get<std::string>() : fallback;
}

}  // namespace sluice::format
