// The wire shape of text completions; streamed and whole replies have the same object name.
#include "api/reply_format.h"

namespace sluice::api {
namespace {

class CompletionFormat final : public ReplyFormat {
 public:
  using ReplyFormat::ReplyFormat;

  std::string begin(int) const override { return {}; }

  Json whole(const std::vector<Choice>& choices, const Usage& usage, const std::vector<Json>& prompt_logprobs) const override {
    Json out = reply("text_completion");
    Json& list = out["choices"] = Json::array();
    const size_t n = prompt_logprobs.empty() ? 1 : choices.size() / prompt_logprobs.size();
    for (const Choice& c : choices) {
      Json one;
      one["index"] = c.index;
      one["text"] = c.text;
      one["logprobs"] = info_.logprobs ? logprobs_json(c.news) : Json(nullptr);
      one["finish_reason"] = finish_name(c.finish);
      one["stop_reason"] = stop_reason(c);
      if (!prompt_logprobs.empty()) one["prompt_logprobs"] = prompt_logprobs[size_t(c.index) / n];
      list.push_back(std::move(one));
    }
    out["usage"] = usage.json();
    return out;
  }

 protected:
  const char* stream_object() const override { return "text_completion"; }
  std::string chunk_body(const Choice& choice) const override { return "\"text\":" + json_string(choice.text); }

  Json logprobs_json(const std::vector<TokenNews>& news) const override {
    Json tokens = Json::array(), own = Json::array(), tops = Json::array(), offsets = Json::array();
    for (const TokenNews& n : news) {
      const std::string name = token_string(*tokenizer_, n.sample.token, true);
      tokens.push_back(name);
      offsets.push_back(n.text_offset);
      if (!n.known) {
        own.push_back(nullptr);
        tops.push_back(nullptr);
        continue;
      }
      own.push_back(finite_logprob(n.sample.logprob));
      Json top = Json::object();
      for (const auto& t : n.sample.top) top.emplace(token_string(*tokenizer_, t.token, true), finite_logprob(t.logprob));
      top.emplace(name, finite_logprob(n.sample.logprob));  // the token itself always stands in its list
      tops.push_back(std::move(top));
    }
    Json out;
    out["text_offset"] = std::move(offsets);
    out["token_logprobs"] = std::move(own);
    out["tokens"] = std::move(tokens);
    out["top_logprobs"] = std::move(tops);
    return out;
  }
};

}  // namespace

std::unique_ptr<ReplyFormat> completion_format(ReplyInfo info, std::shared_ptr<const text::Tokenizer> tokenizer) {
  return std::make_unique<CompletionFormat>(std::move(info), std::move(tokenizer));
}

}  // namespace sluice::api
