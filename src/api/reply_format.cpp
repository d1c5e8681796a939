#include "api/reply_format.h"

#include <algorithm>
#include <cmath>

namespace sluice::api {

std::string token_string(const text::Tokenizer& tokenizer, sched::TokenId id, bool distinct) {
  if (id < 0 || id >= tokenizer.size()) return {};
  const std::string_view bytes = tokenizer.token_bytes(id, true);
  if (text::is_valid_utf8(bytes)) return std::string(bytes);
  if (!distinct) {
    text::Utf8Stream clean;
    std::string out = clean.push(bytes);
    return out + clean.finish();
  }
  std::string out = "bytes:";
  for (const char c : bytes) {
    char hex[8];
    std::snprintf(hex, sizeof hex, "\\x%02x", unsigned(uint8_t(c)));
    out += hex;
  }
  return out;
}

double finite_logprob(float logprob) { return std::isfinite(logprob) ? std::max(double(logprob), -9999.0) : -9999.0; }

Json Usage::json() const {
  Json out;
  out["prompt_tokens"] = prompt_tokens;
  out["completion_tokens"] = completion_tokens;
  out["total_tokens"] = prompt_tokens + completion_tokens;
  out["prompt_tokens_details"]["cached_tokens"] = cached_tokens;
  out["completion_tokens_details"]["accepted_prediction_tokens"] = accepted_tokens;
  out["completion_tokens_details"]["rejected_prediction_tokens"] = drafted_tokens - accepted_tokens;
  return out;
}

// Written by hand: it runs once a token, and only the text in it needs a JSON library's care.
std::string ReplyFormat::event(std::string_view choices, const Json* usage) const {
  std::string out = "data: {\"id\":" + json_string(info_.id) + ",\"object\":\"" + stream_object() +
                    "\",\"created\":" + std::to_string(info_.created_s) + ",\"model\":" + json_string(info_.model);
  if (!info_.service_tier.empty()) out += ",\"service_tier\":" + json_string(info_.service_tier);
  out.append(",\"choices\":[").append(choices).append("]");
  if (usage) out += ",\"usage\":" + dump(*usage);
  else if (info_.include_usage) out += ",\"usage\":null";
  return out + "}\n\n";
}

std::string ReplyFormat::chunk(const Choice& choice) const {
  std::string one = "{\"index\":" + std::to_string(choice.index) + "," + chunk_body(choice) + ",\"logprobs\":" +
                    logprobs_text(choice) + ",\"finish_reason\":";
  if (choice.finished())
    one.append("\"").append(finish_name(choice.finish)).append("\",\"stop_reason\":").append(dump(stop_reason(choice)));
  else
    one += "null";
  return event(one + "}", nullptr);
}

std::string ReplyFormat::usage_chunk(const Usage& usage) const {
  const Json json = usage.json();
  return event({}, &json);
}

std::string ReplyFormat::logprobs_text(const Choice& choice) const {
  return info_.logprobs && !choice.news.empty() ? dump(logprobs_json(choice.news)) : "null";
}

Json ReplyFormat::stop_reason(const Choice& choice) const {
  if (!choice.stop_string.empty()) return choice.stop_string;
  const auto& own = info_.stop_token_ids;
  if (choice.stop_token >= 0 && std::find(own.begin(), own.end(), choice.stop_token) != own.end()) return choice.stop_token;
  return nullptr;
}

Json ReplyFormat::reply(const char* object) const {
  Json out;
  out["id"] = info_.id;
  out["object"] = object;
  out["created"] = info_.created_s;
  out["model"] = info_.model;
  if (!info_.service_tier.empty()) out["service_tier"] = info_.service_tier;
  return out;
}

Json ReplyFormat::prompt_logprobs(const Prompt& prompt, const std::vector<sample::SampledToken>& known) const {
  Json out = Json::array();
  const auto entry = [&](sched::TokenId id, float logprob) {
    Json one;
    one["logprob"] = finite_logprob(logprob);
    one["decoded_token"] = token_string(*tokenizer_, id, false);
    return one;
  };
  for (size_t i = 0; i < prompt.ids.size(); ++i) {
    const TokenNews news = prompt_news(prompt, i, known);
    if (!news.known) {
      out.push_back(nullptr);
      continue;
    }
    Json position;
    position[std::to_string(news.sample.token)] = entry(news.sample.token, news.sample.logprob);
    for (const auto& t : news.sample.top) position[std::to_string(t.token)] = entry(t.token, t.logprob);
    out.push_back(std::move(position));
  }
  return out;
}

}  // namespace sluice::api
