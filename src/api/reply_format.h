// ReplyFormat: how choices look on the wire, for chat and for completions. Pure text making; const methods, one thread.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "api/choice.h"
#include "api/json.h"

namespace sluice::api {

struct ReplyInfo {
  std::string id;
  std::string model;
  std::string service_tier;         // empty: not reported
  int64_t created_s = 0;
  bool include_usage = false;
  bool logprobs = false;
  std::vector<sched::TokenId> stop_token_ids;  // the request's own, to be named in stop_reason
};

struct Usage {
  int64_t prompt_tokens = 0, completion_tokens = 0, cached_tokens = 0;
  int64_t drafted_tokens = 0, accepted_tokens = 0;  // by speculation: verified, and of them in the output
  Json json() const;
};

class ReplyFormat {
 public:
  ReplyFormat(ReplyInfo info, std::shared_ptr<const text::Tokenizer> tokenizer)
      : info_(std::move(info)), tokenizer_(std::move(tokenizer)) {}
  virtual ~ReplyFormat() = default;

  // One "data: ...\n\n" event. begin: the first word of a choice ("" when the format has none).
  virtual std::string begin(int index) const = 0;
  // What the choice holds now; with its end when it has finished.
  std::string chunk(const Choice& choice) const;
  std::string usage_chunk(const Usage& usage) const;
  // The whole reply of a request that is not streamed. prompt_logprobs: null or an array per prompt.
  virtual Json whole(const std::vector<Choice>& choices, const Usage& usage, const std::vector<Json>& prompt_logprobs) const = 0;
  // prompt_logprobs as vLLM shows them: null, then {id: {logprob, decoded_token}} a position.
  Json prompt_logprobs(const Prompt& prompt, const std::vector<sample::SampledToken>& known) const;

 protected:
  virtual const char* stream_object() const = 0;
  virtual std::string chunk_body(const Choice& choice) const = 0;   // '"delta":{...}' or '"text":"..."'
  virtual Json logprobs_json(const std::vector<TokenNews>& news) const = 0;
  std::string event(std::string_view choices, const Json* usage) const;
  std::string logprobs_text(const Choice& choice) const;
  Json stop_reason(const Choice& choice) const;
  Json reply(const char* object) const;

  ReplyInfo info_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
};

std::unique_ptr<ReplyFormat> chat_format(ReplyInfo info, std::shared_ptr<const text::Tokenizer> tokenizer);
std::unique_ptr<ReplyFormat> completion_format(ReplyInfo info, std::shared_ptr<const text::Tokenizer> tokenizer);

// A token's bytes as a valid string: broken characters become U+FFFD, or, for keys that must differ, "bytes:\xe2\x80".
std::string token_string(const text::Tokenizer& tokenizer, sched::TokenId id, bool distinct);
// JSON has no infinity: what is that unlikely is -9999, as OpenAI writes it.
double finite_logprob(float logprob);

}  // namespace sluice::api
