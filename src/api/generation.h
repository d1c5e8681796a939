// Generation: a checked request for text, ready to be submitted; and how it is read from a body. Values only; nothing here
// touches the engine. Lengths are tokens.
#pragma once
#include <string>
#include <vector>

#include "api/endpoint.h"
#include "api/json.h"
#include "sched/request.h"

namespace sluice::api {

enum class ReplyKind { kChat, kCompletion };

// One prompt of a request (a chat has one; completions may have many).
struct Prompt {
  std::vector<sched::TokenId> ids;
  std::string text;                 // for echo
};

struct Generation {
  ReplyKind kind = ReplyKind::kChat;
  std::vector<Prompt> prompts;      // >= 1, none empty
  sched::Submission submission;     // everything but prompt, sink, cancelled and id
  bool stream = false;
  bool include_usage = false;
  bool logprobs = false;
  bool echo = false;
  int prompt_logprobs = -1;         // as the request asked; the submission's may be larger for echo
  std::string service_tier;         // to report; empty when the request named none
  const Pool* pool = nullptr;       // where it goes
};

// Errors: kNotFound with field "model".
Status check_model(const Json& body, const ServedModel& model);

// What chat and completions share, without prompt and max_tokens: fields, and what the caller's key and headers say.
Status read_common(const Json& body, const Call& call, Generation& out);

// Checks prompt + output against the context and settles max_tokens: `asked` < 0 means the rest of the context.
// field names the prompt in the error.
Status settle_length(const Context& context, int64_t asked, const char* field, Generation& out);
// An error when a text of this size cannot fit whatever its tokens are; spares encoding it.
Status check_text_size(const Context& context, size_t bytes, const char* field);

// Whole bodies.
Result<Generation> read_chat(const Call& call);
Result<Generation> read_completion(const Call& call);

}  // namespace sluice::api
