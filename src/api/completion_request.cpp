// The body of POST /v1/completions.
#include "api/fields.h"
#include "api/generation.h"

namespace sluice::api {
namespace {

constexpr size_t kMaxPrompts = 2048;
constexpr size_t kMaxChoicesInAll = 4096;
constexpr int64_t kDefaultMaxTokens = 16;

// Control tokens in the text become their ids: the prompt is the model's raw input, and callers that build a chat format by
// hand depend on it.
Result<Prompt> prompt_of_text(const Context& context, const std::string& text, bool add_special) {
  SLUICE_TRY(check_text_size(context, text.size(), "prompt"));
  const auto& tokenizer = *context.model.tokenizer;
  Prompt out;
  out.text = text;
  out.ids = tokenizer.encode(text, {.parse_special = true, .add_bos = add_special});
  if (out.ids.empty() && tokenizer.bos() >= 0) out.ids = {tokenizer.bos()};
  if (out.ids.empty()) return invalid("prompt encodes to no tokens and this model has no token to begin with", "prompt");
  return out;
}

Result<Prompt> prompt_of_ids(const Context& context, const Json& ids) {
  const auto& tokenizer = *context.model.tokenizer;
  Prompt out;
  SLUICE_ASSIGN(out.ids, token_ids(ids, tokenizer.size(), "prompt"));
  if (out.ids.empty() && tokenizer.bos() >= 0) out.ids = {tokenizer.bos()};
  if (out.ids.empty()) return invalid("prompt holds no tokens and this model has no token to begin with", "prompt");
  out.text = tokenizer.decode(out.ids);
  return out;
}

Status read_prompts(const Json& body, const Context& context, bool add_special, Generation& out) {
  Fields f(body);
  const Json* v = f.find("prompt");
  if (!v) return invalid("prompt is required", "prompt");
  const auto add = [&](Result<Prompt> one) -> Status {
    if (!one.ok()) return one.error();
    out.prompts.push_back(std::move(*one));
    return {};
  };
  if (v->is_string()) return add(prompt_of_text(context, v->get_ref<const std::string&>(), add_special));
  if (!v->is_array() || v->empty())
    return invalid("prompt must be a string, an array of strings, an array of token ids or an array of such arrays, not " +
                       std::string(v->is_array() ? "an empty array" : brief(*v)), "prompt");
  if (v->front().is_number()) return add(prompt_of_ids(context, *v));
  if (v->size() > kMaxPrompts)
    return invalid("prompt holds " + std::to_string(v->size()) + " prompts; the limit is " + std::to_string(kMaxPrompts), "prompt");
  for (const Json& one : *v) {
    if (one.is_string()) SLUICE_TRY(add(prompt_of_text(context, one.get_ref<const std::string&>(), add_special)));
    else if (one.is_array()) SLUICE_TRY(add(prompt_of_ids(context, one)));
    else return invalid("prompt must hold strings or arrays of token ids, got " + brief(one), "prompt");
  }
  return {};
}

}  // namespace

Result<Generation> read_completion(const Call& call) {
  const Context& context = *call.context;
  SLUICE_ASSIGN(const Json body, parse_body(call.request.body));
  Generation out;
  out.kind = ReplyKind::kCompletion;
  SLUICE_TRY(read_common(body, call, out));
  Fields f(body);
  const int64_t max_tokens = f.integer("max_tokens", 0, INT32_MAX, kDefaultMaxTokens);
  const int64_t logprobs = f.integer("logprobs", 0, sample::kMaxLogprobs, -1);
  out.echo = f.boolean("echo", false);
  const int64_t best_of = f.integer("best_of", 1, 20, out.submission.n);
  if (best_of != out.submission.n) f.fail("best_of", "other than n is not supported");
  if (!f.string("suffix", "").empty()) f.fail("suffix", "is not supported");
  const bool add_special = f.boolean("add_special_tokens", true);
  SLUICE_TRY(f.status());
  out.logprobs = logprobs >= 0;
  out.submission.sampling.num_logprobs = int32_t(logprobs);
  if (out.echo && out.logprobs)
    out.submission.prompt_logprobs = std::max(out.submission.prompt_logprobs, int32_t(logprobs));
  SLUICE_TRY(read_prompts(body, context, add_special, out));
  if (out.prompts.size() * size_t(out.submission.n) > kMaxChoicesInAll)
    return invalid("n times the number of prompts is " + std::to_string(out.prompts.size() * size_t(out.submission.n)) +
                       "; the limit is " + std::to_string(kMaxChoicesInAll), "n");
  SLUICE_TRY(settle_length(context, max_tokens, "prompt", out));
  return out;
}

}  // namespace sluice::api
