// POST /tokenize in both dialects: {prompt | messages} as vLLM has it, {content} as llama.cpp does.
#include "api/chat_prompt.h"
#include "api/fields.h"
#include "api/reply.h"
#include "text/utf8_stream.h"

namespace sluice::api {
namespace {

// A piece as text, or as its bytes when it is no whole character.
Json piece_json(std::string_view bytes) {
  if (text::is_valid_utf8(bytes)) return std::string(bytes);
  Json out = Json::array();
  for (const char c : bytes) out.push_back(uint8_t(c));
  return out;
}

Result<Json> tokenize_content(Fields& f, const text::Tokenizer& tokenizer) {
  const std::string content = f.string("content", "");
  const bool add_special = f.boolean("add_special", false);
  const bool parse_special = f.boolean("parse_special", true);
  const bool with_pieces = f.boolean("with_pieces", false);
  SLUICE_TRY(f.status());
  Json out;
  Json& tokens = out["tokens"] = Json::array();
  for (const auto id : tokenizer.encode(content, {.parse_special = parse_special, .add_bos = add_special})) {
    if (!with_pieces) {
      tokens.push_back(id);
      continue;
    }
    Json one;
    one["id"] = id;
    one["piece"] = piece_json(tokenizer.token_bytes(id, true));
    tokens.push_back(std::move(one));
  }
  return out;
}

Result<Json> tokenize(const Context& context, const std::string& text) {
  SLUICE_ASSIGN(const Json body, parse_body(text));
  SLUICE_TRY(check_model(body, context.model));
  Fields f(body);
  const auto& tokenizer = *context.model.tokenizer;
  if (f.has("content")) return tokenize_content(f, tokenizer);
  std::vector<text::TokenId> ids;
  const bool add_special = f.boolean("add_special_tokens", true);
  const bool with_strings = f.boolean("return_token_strs", false);
  if (f.has("messages")) {
    SLUICE_TRY(f.status());
    SLUICE_ASSIGN(Prompt prompt, chat_prompt(body, context));
    ids = std::move(prompt.ids);
  } else if (f.has("prompt")) {
    const std::string prompt = f.string("prompt", "");
    SLUICE_TRY(f.status());
    ids = tokenizer.encode(prompt, {.parse_special = true, .add_bos = add_special});
  } else {
    return invalid("one of prompt, messages and content is required", "prompt");
  }
  Json out;
  out["count"] = ids.size();
  out["max_model_len"] = context.model.max_context;
  out["tokens"] = ids;
  if (with_strings) {
    Json& strings = out["token_strs"] = Json::array();
    for (const auto id : ids) strings.push_back(tokenizer.token_text(id));
  }
  return out;
}

std::unique_ptr<http::Exchange> handle(Call&& call) {
  const auto reply = tokenize(*call.context, call.request.body);
  return reply.ok() ? json_reply(200, *reply) : error_reply(reply.error(), call.context->front());
}

}  // namespace

extern const Endpoint endpoint_tokenize{{{{"POST", "/tokenize"}}}, false, handle};

}  // namespace sluice::api
