// The query of a URL: "limit=20&after=batch_1". Pure, any thread.
#pragma once
#include <string>
#include <string_view>

#include "base/result.h"

namespace sluice::api {

// The first value of this name, decoded; or "".
std::string query_value(std::string_view query, std::string_view name);
// Error: kInvalidArgument naming the field, the value and the range.
Result<int64_t> query_integer(std::string_view query, std::string_view name, int64_t lo, int64_t hi, int64_t otherwise);

}  // namespace sluice::api
