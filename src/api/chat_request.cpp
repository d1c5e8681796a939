// The body of POST /v1/chat/completions.
#include "api/chat_prompt.h"
#include "api/fields.h"
#include "api/generation.h"

namespace sluice::api {

Result<Generation> read_chat(const Call& call) {
  const Context& context = *call.context;
  SLUICE_ASSIGN(const Json body, parse_body(call.request.body));
  Generation out;
  out.kind = ReplyKind::kChat;
  SLUICE_TRY(read_common(body, call, out));
  Fields f(body);
  int64_t max_tokens = f.integer("max_tokens", 1, INT32_MAX, -1);
  max_tokens = f.integer("max_completion_tokens", 1, INT32_MAX, max_tokens);
  out.logprobs = f.boolean("logprobs", false);
  const int64_t top = f.integer("top_logprobs", 0, sample::kMaxLogprobs, 0);
  if (top > 0 && !out.logprobs) f.fail("top_logprobs", "needs logprobs to be true");
  SLUICE_TRY(f.status());
  if (out.logprobs) out.submission.sampling.num_logprobs = int32_t(top);
  SLUICE_ASSIGN(Prompt prompt, chat_prompt(body, context));
  out.prompts.push_back(std::move(prompt));
  SLUICE_TRY(settle_length(context, max_tokens, "messages", out));
  return out;
}

}  // namespace sluice::api
