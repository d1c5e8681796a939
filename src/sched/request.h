// Submission and TokenEvent: what crosses between the edge (many threads) and the engine (one thread).
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/result.h"
#include "sample/sampling_params.h"

namespace sluice::sched {

using TokenId = int32_t;

enum class RequestClass : uint8_t { kInteractive = 0, kBatch = 1 };

enum class FinishReason : uint8_t { kNone, kStop, kLength, kCancelled, kError };

// One generated (or, with prompt logprobs, one prompt) token's news; or the end of a choice.
struct TokenEvent {
  int32_t choice = 0;
  bool has_token = false;
  bool is_prompt = false;        // a prompt position's logprob (sample.token is the prompt token itself)
  sample::SampledToken sample;   // when has_token
  std::string text;              // bytes that are now safe to show (may split a character, never a stop string)
  FinishReason finish = FinishReason::kNone;
  std::string stop_string;       // the stop that matched, when one did
  TokenId stop_token = -1;       // the token that ended it, when one did
  int32_t cached_tokens = 0;     // of the prompt, at the first event of a choice
  int32_t drafted = 0, accepted = 0;  // draft tokens of the choice, verified and accepted, at its last event
  Error error;                   // when finish == kError
};

// Where a request's events go. push is called on the engine thread, must not block and must not throw.
class ResponseSink {
 public:
  virtual ~ResponseSink() = default;
  virtual void push(TokenEvent&& event) noexcept = 0;
};

// A request as the engine takes it: checked against the model's limits already, but not against the cache's.
struct Submission {
  uint64_t id = 0;                      // unique; given by the engine at submit
  std::vector<TokenId> prompt;          // >= 1 token
  int32_t max_tokens = 16;              // >= 0; 0 = prompt logprobs only
  int32_t min_tokens = 0;
  int32_t n = 1;
  sample::SamplingParams sampling;      // choice is filled per sequence
  std::vector<std::string> stop;
  bool include_stop = false;
  std::vector<TokenId> stop_token_ids;
  bool ignore_eos = false;
  bool keep_special = false;            // control tokens appear in the text
  int32_t prompt_logprobs = -1;         // as num_logprobs, for prompt positions; >= 0 takes no prefix hits
  RequestClass request_class = RequestClass::kInteractive;
  uint64_t cache_salt = 0;
  uint64_t share_key = 0;               // who is served; keys share what there is, by weight
  double share_weight = 1;
  // Hints; 0: none. When the first token is wanted after arrival, and how far apart the others.
  TimeUs ttft_target_us = 0, tpot_target_us = 0;
  TimeUs queue_timeout_us = 0;          // after arrival; a request that no step has taken by then ends with kOverloaded; 0: never
  std::shared_ptr<ResponseSink> sink;
  std::shared_ptr<std::atomic<bool>> cancelled;  // set by the edge when the client is gone; read every step
  TimeUs arrived_us = 0;
};

}  // namespace sluice::sched
