// The wire shape of chat completions.
#include "api/reply_format.h"

namespace sluice::api {
namespace {

class ChatFormat final : public ReplyFormat {
 public:
  using ReplyFormat::ReplyFormat;

  std::string begin(int index) const override {
    return event("{\"index\":" + std::to_string(index) +
                     ",\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,\"finish_reason\":null}", nullptr);
  }

  Json whole(const std::vector<Choice>& choices, const Usage& usage, const std::vector<Json>& prompt_logprobs) const override {
    Json out = reply("chat.completion");
    Json& list = out["choices"] = Json::array();
    for (const Choice& c : choices) {
      Json one;
      one["index"] = c.index;
      one["message"] = {{"role", "assistant"}, {"content", c.text}, {"refusal", nullptr}};
      one["logprobs"] = info_.logprobs ? logprobs_json(c.news) : Json(nullptr);
      one["finish_reason"] = finish_name(c.finish);
      one["stop_reason"] = stop_reason(c);
      list.push_back(std::move(one));
    }
    out["usage"] = usage.json();
    if (!prompt_logprobs.empty()) out["prompt_logprobs"] = prompt_logprobs.front();
    return out;
  }

 protected:
  const char* stream_object() const override { return "chat.completion.chunk"; }

  std::string chunk_body(const Choice& choice) const override {
    if (choice.text.empty()) return "\"delta\":{}";
    return "\"delta\":{\"content\":" + json_string(choice.text) + "}";
  }

  Json logprobs_json(const std::vector<TokenNews>& news) const override {
    Json content = Json::array();
    for (const TokenNews& n : news) {
      Json one = entry(n.sample.token, n.sample.logprob);
      Json& top = one["top_logprobs"] = Json::array();
      for (const auto& t : n.sample.top) top.push_back(entry(t.token, t.logprob));
      content.push_back(std::move(one));
    }
    Json out;
    out["content"] = std::move(content);
    out["refusal"] = nullptr;
    return out;
  }

 private:
  Json entry(sched::TokenId id, float logprob) const {
    Json out;
    out["token"] = token_string(*tokenizer_, id, false);
    out["logprob"] = finite_logprob(logprob);
    Json& bytes = out["bytes"] = Json::array();
    if (id >= 0 && id < tokenizer_->size())
      for (const char c : tokenizer_->token_bytes(id, true)) bytes.push_back(uint8_t(c));
    return out;
  }
};

}  // namespace

std::unique_ptr<ReplyFormat> chat_format(ReplyInfo info, std::shared_ptr<const text::Tokenizer> tokenizer) {
  return std::make_unique<ChatFormat>(std::move(info), std::move(tokenizer));
}

}  // namespace sluice::api
