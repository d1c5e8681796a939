#include "api/choice.h"

namespace sluice::api {
namespace {

// Characters that begin in these bytes: a character split over tokens counts where it begins.
int64_t characters_in(std::string_view bytes) {
  int64_t n = 0;
  for (const char c : bytes) n += (uint8_t(c) & 0xC0) != 0x80;
  return n;
}

}  // namespace

const char* finish_name(sched::FinishReason reason) {
  return reason == sched::FinishReason::kLength ? "length" : "stop";
}

TokenNews prompt_news(const Prompt& prompt, size_t i, const std::vector<sample::SampledToken>& known) {
  TokenNews out;
  const size_t unknown = prompt.ids.size() - std::min(known.size(), prompt.ids.size());
  if (i > 0 && i >= unknown) {
    out.sample = known[i - unknown];
  } else {
    out.known = false;
  }
  out.sample.token = prompt.ids[i];
  return out;
}

void Choice::apply(sched::TokenEvent&& event, bool logprobs, const text::Tokenizer& tokenizer) {
  begun = true;
  if (event.has_token && logprobs) {
    TokenNews one;
    one.text_offset = offset;
    offset += characters_in(tokenizer.token_bytes(event.sample.token));
    one.sample = std::move(event.sample);
    news.push_back(std::move(one));
  }
  if (!event.text.empty()) text += characters.push(event.text);
  if (event.finish == sched::FinishReason::kNone) return;
  text += characters.finish();
  finish = event.finish;
  stop_string = std::move(event.stop_string);
  stop_token = event.stop_token;
}

void Choice::put_prompt(const Prompt& prompt, const std::vector<sample::SampledToken>& known, bool logprobs,
                        const text::Tokenizer& tokenizer) {
  text::Utf8Stream clean;  // ids may decode to a broken character
  text = clean.push(prompt.text) + clean.finish();
  if (!logprobs) return;
  for (size_t i = 0; i < prompt.ids.size(); ++i) {
    TokenNews one = prompt_news(prompt, i, known);
    one.text_offset = offset;
    offset += characters_in(tokenizer.token_bytes(prompt.ids[i]));
    news.push_back(std::move(one));
  }
}

}  // namespace sluice::api
