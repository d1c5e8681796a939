// multipart/form-data (RFC 7578): a body in parts, as uploads come. Pure; any thread. Nothing of the input is trusted.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice::api {

constexpr size_t kMaxParts = 32;
constexpr size_t kMaxPartHeadBytes = 8 << 10;

struct Part {
  std::string name, filename;    // filename empty: a plain field
  std::string_view content;      // inside the body
};

// Errors: kInvalidArgument saying what is wrong where, and the limit.
Result<std::vector<Part>> parse_multipart(std::string_view content_type, std::string_view body);

}  // namespace sluice::api
