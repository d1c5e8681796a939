// JSON at the edge: guarded parsing of untrusted bodies, and replies. Internal to api/; exceptions of the library stay in
// json.cpp. Pure functions, any thread.
#pragma once
#include <memory>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/result.h"
#include "http/exchange.h"

namespace sluice::api {

using Json = nlohmann::ordered_json;

constexpr int kMaxJsonDepth = 64;
constexpr size_t kMaxJsonValues = 2'000'000;      // a body of "[],[],..." would otherwise take 20 times its size in memory
constexpr uint64_t kMaxJsonKeyWork = 100'000'000;  // ordered objects look keys up linearly: bounds the comparisons

// Errors: kInvalidArgument for what is not UTF-8, not JSON, nested or populated beyond the limits, or a number that does
// not fit a double.
Result<Json> parse_json(std::string_view text);
// As parse_json, and it must be an object.
Result<Json> parse_body(std::string_view text);

// Compact text; bytes that are not UTF-8 become U+FFFD.
std::string dump(const Json& json);
// A string as a JSON literal with its quotes.
std::string json_string(std::string_view text);
// A value as a message may quote it: short, and never a whole array or object.
std::string brief(const Json& json);

}  // namespace sluice::api
