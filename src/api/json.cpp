#include "api/json.h"

#include <array>

#include "text/utf8_stream.h"

namespace sluice::api {
namespace {

// Walks the brackets without building anything, so that a hostile shape costs one pass over its bytes.
Status check_shape(std::string_view text) {
  std::array<uint32_t, kMaxJsonDepth + 1> keys{};
  int depth = 0;
  size_t values = 0;
  uint64_t work = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    switch (text[i]) {
      case '"':
        for (++i; i < text.size() && text[i] != '"'; ++i)
          if (text[i] == '\\') ++i;
        break;
      case '{':
      case '[':
        if (++depth > kMaxJsonDepth)
          return invalid("the JSON is nested deeper than the limit of " + std::to_string(kMaxJsonDepth) + " levels");
        keys[size_t(depth)] = 0;
        ++values;
        break;
      case '}':
      case ']':
        if (--depth < 0) return invalid("the request body is not valid JSON: a bracket closes that was never opened");
        break;
      case ',':
        ++values;
        break;
      case ':':
        work += ++keys[size_t(depth)];
        break;
    }
    if (values > kMaxJsonValues)
      return invalid("the JSON holds more than the limit of " + std::to_string(kMaxJsonValues) + " values");
    if (work > kMaxJsonKeyWork) return invalid("the JSON holds objects with too many members");
  }
  return {};
}

// The library's text without its exception's name: "[json.exception.parse_error.101] parse error at ...".
std::string library_message(const char* what) {
  std::string_view s(what);
  if (const size_t end = s.find("] "); end != s.npos) s.remove_prefix(end + 2);
  return std::string(s.substr(0, 200));
}

}  // namespace

Result<Json> parse_json(std::string_view text) {
  SLUICE_TRY(check_shape(text));
  if (!text::is_valid_utf8(text)) return invalid("the request body is not valid UTF-8");
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const nlohmann::json::exception& e) {
    return invalid("the request body is not valid JSON: " + library_message(e.what()));
  }
}

Result<Json> parse_body(std::string_view text) {
  if (text.empty()) return invalid("the request body is empty: a JSON object is required");
  SLUICE_ASSIGN(Json body, parse_json(text));
  if (!body.is_object()) return invalid("the request body must be a JSON object, got " + brief(body));
  return body;
}

std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

std::string json_string(std::string_view text) {
  // Most pieces of a stream need no escape at all: spare them the library.
  bool plain = true;
  for (const char c : text)
    if (uint8_t(c) < 0x20 || c == '"' || c == '\\' || uint8_t(c) >= 0x7f) plain = false;
  if (!plain) return dump(Json(text));
  std::string out;
  out.reserve(text.size() + 2);
  return out.append("\"").append(text).append("\"");
}

std::string brief(const Json& json) {
  if (json.is_array()) return "an array";
  if (json.is_object()) return "an object";
  if (!json.is_string()) return dump(json);
  const auto& s = json.get_ref<const std::string&>();
  return s.size() <= 64 ? json_string(s) : json_string(s.substr(0, 61) + "...");
}

}  // namespace sluice::api
