// What a model is judged on: a user's own text cut into sequences, and tasks with answers.
//   .txt    one long text, cut into windows of `context` tokens; of each the second half is scored, after at least half a window of
//           context. Where the vocabulary has texts begin with BOS, every window does: its first token is replaced. (As llama.cpp's
//           perplexity cuts, so that figures compare.) A text shorter than a window is one sequence, scored from its second token.
//   .jsonl  one object a line: a prompt (lab/prompt_line.h), scored from its second token, and if wanted "answer":
//             a string             the greedy continuation must be it ("match": "exact") or have it in it ("contains", the default);
//                                  "max_tokens" may say how long the continuation is. The answer's own tokens are scored as text too.
//             with "choices"       a list of strings of which the answer is one, or the index of one: the likeliest must be it
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "lab/loaded_model.h"

namespace sluice::lab {

struct EvalText {
  std::vector<int32_t> tokens;
  int first = 1;                   // tokens[first..] are scored
  int64_t place = 0;               // of tokens[0]: in the text's tokens, or the line of a .jsonl
};

enum class Match { kExact, kContains, kChoice };

struct EvalTask {
  std::vector<int32_t> prompt;
  std::string answer;
  Match match = Match::kContains;
  int max_tokens = 32;
  std::vector<EvalText> choices;   // the prompt and each choice, whose tokens are scored
  int right = -1;                  // of choices
  int64_t line = 0;
};

struct EvalData {
  std::vector<EvalText> texts;
  std::vector<EvalTask> tasks;
};

struct EvalDataOptions {
  std::string path;
  int context = 512;               // tokens of a window
  int64_t tokens = 0;              // scored at most; 0: all
  int max_tokens = 32;             // of a continuation, where a line says nothing
};

// Errors: kNotFound, kBadFile naming the line, kContextLength naming a line that is longer than the model's context here.
Result<EvalData> read_eval_data(const EvalDataOptions& options, const LoadedModel& model);

}  // namespace sluice::lab
