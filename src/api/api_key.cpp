#include "api/api_key.h"

#include <charconv>

namespace sluice::api {
namespace {

bool same_secret(std::string_view a, std::string_view b) {
  volatile unsigned char diff = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) diff = diff | (uint8_t(a[i]) ^ uint8_t(b.empty() ? 0 : b[i % b.size()]));
  return diff == 0;
}

Status set(ApiKey& key, std::string_view name, std::string_view value) {
  if (name == "class") {
    SLUICE_ASSIGN(key.request_class, parse_class(value, "--api-key class"));
  } else if (name == "pool") {
    key.pool = value;
  } else if (name == "name") {
    key.name = value;
  } else if (name == "weight") {
    const auto [end, ec] = std::from_chars(value.data(), value.data() + value.size(), key.weight);
    if (ec != std::errc() || end != value.data() + value.size() || !(key.weight >= 0.001 && key.weight <= 1000))
      return invalid("weight must be a number from 0.001 to 1000, got '" + std::string(value.substr(0, 20)) + "'", "--api-key");
  } else {
    return invalid("'" + std::string(name.substr(0, 20)) + "' is none of class, pool, weight and name", "--api-key");
  }
  return {};
}

}  // namespace

Result<sched::RequestClass> parse_class(std::string_view text, const std::string& field) {
  if (text == "interactive") return sched::RequestClass::kInteractive;
  if (text == "batch") return sched::RequestClass::kBatch;
  return invalid("must be interactive or batch, got '" + std::string(text.substr(0, 20)) + "'", field);
}

Result<ApiKey> parse_api_key(const std::string& text) {
  ApiKey out;
  std::string_view rest = text;
  const auto next = [&] {
    const size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    rest.remove_prefix(comma == rest.npos ? rest.size() : comma + 1);
    return part;
  };
  out.secret = next();
  if (out.secret.empty()) return invalid("a key must not be empty", "--api-key");
  while (!rest.empty()) {
    const std::string_view part = next();
    const size_t equals = part.find('=');
    if (equals == part.npos) return invalid("after the key come class=, pool=, weight= and name=, divided by commas", "--api-key");
    SLUICE_TRY(set(out, part.substr(0, equals), part.substr(equals + 1)));
  }
  if (out.name.empty()) out.name = out.secret;
  return out;
}

const ApiKey* find_key(const std::vector<ApiKey>& keys, const http::Request& request) {
  std::string_view given = request.header("x-api-key");
  std::string_view bearer = request.header("authorization");
  if (bearer.size() > 7 && (bearer.starts_with("Bearer ") || bearer.starts_with("bearer "))) given = bearer.substr(7);
  const ApiKey* found = nullptr;
  for (const ApiKey& key : keys)
    if (same_secret(given, key.secret)) found = &key;
  return found;
}

}  // namespace sluice::api
