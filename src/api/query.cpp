#include "api/query.h"

#include <charconv>

#include "api/json.h"

namespace sluice::api {
namespace {

int hex(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

std::string decoded(std::string_view s) {
  std::string out;
  for (size_t i = 0; i < s.size(); ++i) {
    if (s[i] == '%' && i + 2 < s.size() && hex(s[i + 1]) >= 0 && hex(s[i + 2]) >= 0) {
      out += char(hex(s[i + 1]) * 16 + hex(s[i + 2]));
      i += 2;
    } else {
      out += s[i] == '+' ? ' ' : s[i];
    }
  }
  return out;
}

}  // namespace

std::string query_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const size_t end = query.find('&');
    const std::string_view pair = query.substr(0, end);
    query.remove_prefix(end == query.npos ? query.size() : end + 1);
    const size_t equals = pair.find('=');
    if (equals != pair.npos && pair.substr(0, equals) == name) return decoded(pair.substr(equals + 1));
  }
  return {};
}

Result<int64_t> query_integer(std::string_view query, std::string_view name, int64_t lo, int64_t hi, int64_t otherwise) {
  const std::string text = query_value(query, name);
  if (text.empty()) return otherwise;
  int64_t out = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (ec == std::errc() && end == text.data() + text.size() && out >= lo && out <= hi) return out;
  const std::string field(name);
  return invalid(field + " must be an integer from " + std::to_string(lo) + " to " + std::to_string(hi) + ", got " + brief(Json(text)), field);
}

}  // namespace sluice::api
