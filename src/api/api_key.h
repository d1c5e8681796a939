// ApiKey: who may use the API, and how what they ask for is treated. Values; any thread.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "http/exchange.h"
#include "sched/request.h"

namespace sluice::api {

struct ApiKey {
  std::string secret;
  std::optional<sched::RequestClass> request_class;  // of requests that do not tell theirs; batch: of all of them
  std::string pool;                                  // where they go; empty: as their model's name and class say
  double weight = 1;                                 // of the key's share of what is served
  std::string name;                                  // for people; also what its share is kept under
};

// "SECRET", or "SECRET,class=batch,pool=NAME,weight=2,name=NAME". Errors name --api-key, never the secret.
Result<ApiKey> parse_api_key(const std::string& text);
Result<sched::RequestClass> parse_class(std::string_view text, const std::string& field);  // interactive or batch

// The key that a request brings, or null. Takes as long for a wrong one as for a right one.
const ApiKey* find_key(const std::vector<ApiKey>& keys, const http::Request& request);

}  // namespace sluice::api
