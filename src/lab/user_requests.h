// A user's own requests, for drivers that measure on them: texts, or lengths and arrivals of a trace.
//   .txt    prompts, separated by empty lines
//   .jsonl  one object a line: "prompt" (text) or "messages" (a chat), and if wanted "max_tokens" and "service_tier": "flex"; a
//           line of the batch API, with these in its "body", will do
//   .csv    a trace (lab/workload.h); prompts are random tokens
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "lab/loaded_model.h"

namespace sluice::lab {

struct UserRequest {
  std::vector<int32_t> prompt;   // >= 1 token
  int output_tokens = 1;
  double at_s = 0;               // of a trace: when it came; else 0
  bool batch = false;            // of batch class
};

struct UserRequestOptions {
  std::string path;
  std::string output_tokens = "128";  // a distribution, where a request says none
  int divide_lengths = 1;             // of a trace
  int limit = 10000;                  // requests read at most
  uint64_t seed = 1;
};

// Errors: kNotFound, kBadFile naming the line, kContextLength naming a request that can never fit.
Result<std::vector<UserRequest>> read_user_requests(const UserRequestOptions& options, const LoadedModel& model);

}  // namespace sluice::lab
