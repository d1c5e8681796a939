#include "lab/eval_data.h"

#include <algorithm>
#include <fstream>
#include <iterator>

#include <nlohmann/json.hpp>

#include "lab/prompt_line.h"

namespace sluice::lab {
namespace {

using Json = nlohmann::ordered_json;
constexpr int kMostTokens = 4096;    // of a continuation
constexpr size_t kMostChoices = 100;

class Reader {
 public:
  Reader(const EvalDataOptions& o, const LoadedModel& m) : o_(o), m_(m) {}

  Result<EvalData> read() {
    std::ifstream in(o_.path, std::ios::binary);
    if (!in) return Error{ErrorCode::kNotFound, o_.path + ": cannot be read", "--data"};
    if (o_.path.ends_with(".jsonl")) {
      std::string line;
      for (line_ = 1; std::getline(in, line) && !full(); ++line_)
        if (line.find_first_not_of(" \t\r") != std::string::npos) SLUICE_TRY(take_line(line));
    } else if (o_.path.ends_with(".txt")) {
      cut(std::string(std::istreambuf_iterator<char>(in), {}));
    } else {
      return invalid("'" + o_.path + "' is neither .txt nor .jsonl", "--data");
    }
    if (scored_ == 0 && out_.tasks.empty()) return bad_file(o_.path + ": holds no token to predict");
    return std::move(out_);
  }

 private:
  std::string where() const { return o_.path + ": line " + std::to_string(line_); }
  bool full() const { return o_.tokens > 0 && scored_ >= o_.tokens; }

  void add(EvalText text) {
    if (full()) return;
    if (o_.tokens > 0) text.tokens.resize(size_t(std::min<int64_t>(int64_t(text.tokens.size()), text.first + o_.tokens - scored_)));
    scored_ += int64_t(text.tokens.size()) - text.first;
    out_.texts.push_back(std::move(text));
  }

  void cut(const std::string& text) {
    const bool begins = m_.tokenizer->add_bos() && m_.tokenizer->bos() >= 0;
    const std::vector<int32_t> tokens = m_.tokenizer->encode(text, {.parse_special = false, .add_bos = true});
    const size_t window = size_t(o_.context);
    if (tokens.size() >= 2 && tokens.size() < window) return add({tokens, 1, 0});
    for (size_t begin = 0; begin + window <= tokens.size() && !full(); begin += window) {
      EvalText t{{tokens.begin() + std::ptrdiff_t(begin), tokens.begin() + std::ptrdiff_t(begin + window)}, o_.context / 2 + 1, int64_t(begin)};
      if (begins) t.tokens[0] = m_.tokenizer->bos();
      add(std::move(t));
    }
  }

  Status fits(const std::vector<int32_t>& tokens, int more) const {
    if (int64_t(tokens.size()) + more <= m_.scheduler.max_context) return {};
    return Error{ErrorCode::kContextLength, where() + " has " + std::to_string(tokens.size()) + " tokens" + (more ? " and " + std::to_string(more) + " to generate" : "") +
                 ", and a sequence may have " + std::to_string(m_.scheduler.max_context), "--context"};
  }

  // The prompt with `more` after it, of which the tokens that the prompt alone does not give are scored. A text is encoded whole, as
  // its last token may take in what follows.
  EvalText continued(const PromptLine& p, const std::string& more) const {
    EvalText t;
    t.place = line_;
    if (p.text.empty()) {
      t.tokens = p.tokens;
      const auto tail = m_.tokenizer->encode(more, {});
      t.tokens.insert(t.tokens.end(), tail.begin(), tail.end());
      t.first = std::max(1, int(p.tokens.size()));
    } else {
      t.tokens = m_.tokenizer->encode(p.text + more, {.parse_special = false, .add_bos = true});
      const auto differs = std::mismatch(p.tokens.begin(), p.tokens.end(), t.tokens.begin(), t.tokens.end()).second;
      t.first = std::max(1, int(differs - t.tokens.begin()));
    }
    return t;
  }

  Status take_line(const std::string& line) {
    const Json j = Json::parse(line, nullptr, false);
    if (!j.is_object()) return bad_file(where() + " is no JSON object");
    SLUICE_ASSIGN(const PromptLine prompt_line, read_prompt(request_of(j), m_, where()));
    const std::vector<int32_t>& prompt = prompt_line.tokens;
    if (prompt.empty()) return bad_file(where() + ": a prompt without a token");
    SLUICE_TRY(fits(prompt, 0));
    if (!j.contains("answer")) {
      if (prompt.size() > 1) add({prompt, 1, line_});
      return {};
    }
    return j.contains("choices") ? take_choices(j, prompt_line) : take_answer(j, prompt_line);
  }

  Status take_answer(const Json& j, const PromptLine& p) {
    if (!j["answer"].is_string() || j["answer"].get<std::string>().empty()) return bad_file(where() + ": \"answer\" is no text");
    EvalTask task;
    task.answer = j["answer"].get<std::string>();
    task.prompt = p.tokens;
    task.line = line_;
    task.max_tokens = o_.max_tokens;
    if (j.contains("max_tokens")) {
      if (!j["max_tokens"].is_number_integer() || j["max_tokens"] < 1 || j["max_tokens"] > kMostTokens)
        return bad_file(where() + ": max_tokens is no number from 1 to " + std::to_string(kMostTokens));
      task.max_tokens = j["max_tokens"].get<int>();
    }
    if (j.contains("match")) {
      if (j["match"] != "exact" && j["match"] != "contains") return bad_file(where() + ": \"match\" is neither \"exact\" nor \"contains\"");
      task.match = j["match"] == "exact" ? Match::kExact : Match::kContains;
    }
    SLUICE_TRY(fits(p.tokens, task.max_tokens));
    EvalText whole = continued(p, task.answer);
    whole.first = 1;
    SLUICE_TRY(fits(whole.tokens, 0));
    add(std::move(whole));
    out_.tasks.push_back(std::move(task));
    return {};
  }

  Status take_choices(const Json& j, const PromptLine& p) {
    const Json& choices = j["choices"];
    const Json& answer = j["answer"];
    if (!choices.is_array() || choices.size() < 2 || choices.size() > kMostChoices)
      return bad_file(where() + ": \"choices\" is no list of 2 to " + std::to_string(kMostChoices) + " texts");
    EvalTask task;
    task.match = Match::kChoice;
    task.line = line_;
    for (size_t i = 0; i < choices.size(); ++i) {
      if (!choices[i].is_string() || choices[i].get<std::string>().empty()) return bad_file(where() + ": choices[" + std::to_string(i) + "] is no text");
      task.choices.push_back(continued(p, choices[i].get<std::string>()));
      const EvalText& t = task.choices.back();
      if (size_t(t.first) >= t.tokens.size()) return bad_file(where() + ": choices[" + std::to_string(i) + "] adds no token to the prompt");
      SLUICE_TRY(fits(t.tokens, 0));
      if (answer == choices[i]) task.right = int(i);
    }
    if (answer.is_number_integer() && answer >= 0 && answer < choices.size()) task.right = answer.get<int>();
    if (task.right < 0) return bad_file(where() + ": \"answer\" is neither one of \"choices\" nor the index of one");
    out_.tasks.push_back(std::move(task));
    if (p.tokens.size() > 1) add({p.tokens, 1, line_});
    return {};
  }

  const EvalDataOptions& o_;
  const LoadedModel& m_;
  int64_t line_ = 0, scored_ = 0;
  EvalData out_;
};

}  // namespace

Result<EvalData> read_eval_data(const EvalDataOptions& o, const LoadedModel& m) {
  if (o.context < 4 || o.context > m.scheduler.max_context)
    return invalid(std::to_string(o.context) + " is outside 4.." + std::to_string(m.scheduler.max_context), "--context");
  if (o.tokens < 0) return invalid("must not be negative", "--tokens");
  if (o.max_tokens < 1 || o.max_tokens > kMostTokens) return invalid("must be from 1 to " + std::to_string(kMostTokens), "--max-tokens");
  return Reader(o, m).read();
}

}  // namespace sluice::lab
