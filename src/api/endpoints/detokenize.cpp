// POST /detokenize: {tokens} -> the text under both dialects' names.
#include "api/fields.h"
#include "api/generation.h"
#include "api/reply.h"

namespace sluice::api {
namespace {

Result<Json> detokenize(const Context& context, const std::string& text) {
  SLUICE_ASSIGN(const Json body, parse_body(text));
  SLUICE_TRY(check_model(body, context.model));
  Fields f(body);
  const Json* tokens = f.find("tokens");
  if (!tokens) return invalid("tokens is required", "tokens");
  const auto& tokenizer = *context.model.tokenizer;
  SLUICE_ASSIGN(const std::vector<int32_t> ids, token_ids(*tokens, tokenizer.size(), "tokens"));
  Json out;
  out["prompt"] = out["content"] = tokenizer.decode(ids, true);
  return out;
}

std::unique_ptr<http::Exchange> handle(Call&& call) {
  const auto reply = detokenize(*call.context, call.request.body);
  return reply.ok() ? json_reply(200, *reply) : error_reply(reply.error(), call.context->front());
}

}  // namespace

extern const Endpoint endpoint_detokenize{{{{"POST", "/detokenize"}}}, false, handle};

}  // namespace sluice::api
