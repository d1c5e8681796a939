// Choice: what has come of one choice and is not written yet: whole characters, and the tokens' logprobs. One thread.
#pragma once
#include <string>
#include <vector>

#include "api/generation.h"
#include "sched/request.h"
#include "text/tokenizer.h"
#include "text/utf8_stream.h"

namespace sluice::api {

// A token with what is known of its distribution.
struct TokenNews {
  sample::SampledToken sample;
  bool known = true;               // false: the first prompt token, which nothing precedes
  int64_t text_offset = 0;         // characters before it
};

struct Choice {
  int index = 0;
  text::Utf8Stream characters;
  std::string text;                // complete characters, not written yet
  std::vector<TokenNews> news;     // when logprobs were asked; not written yet
  int64_t offset = 0;              // characters of all tokens so far
  bool begun = false;
  sched::FinishReason finish = sched::FinishReason::kNone;
  std::string stop_string;
  sched::TokenId stop_token = -1;

  bool finished() const { return finish != sched::FinishReason::kNone; }
  // Takes an event's token, text and end.
  void apply(sched::TokenEvent&& event, bool logprobs, const text::Tokenizer& tokenizer);
  // Puts the prompt before everything: its text and, when logprobs were asked, its tokens.
  void put_prompt(const Prompt& prompt, const std::vector<sample::SampledToken>& known, bool logprobs,
                  const text::Tokenizer& tokenizer);
};

const char* finish_name(sched::FinishReason reason);

// A prompt token's news at position i, when the engine told of the last known.size() positions.
TokenNews prompt_news(const Prompt& prompt, size_t i, const std::vector<sample::SampledToken>& known);

}  // namespace sluice::api
