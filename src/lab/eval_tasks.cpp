#include <algorithm>
#include <numeric>

#include "lab/evaluate.h"

namespace sluice::lab {
namespace {

class TextSink final : public sched::ResponseSink {
 public:
  void push(sched::TokenEvent&& e) noexcept override { text += e.text; }
  std::string text;
};

std::string trimmed(const std::string& s) {
  const size_t begin = s.find_first_not_of(" \t\r\n"), end = s.find_last_not_of(" \t\r\n");
  return begin == std::string::npos ? std::string() : s.substr(begin, end - begin + 1);
}

// Greedy continuations, all through one scheduler: as many at once as it takes.
Result<std::vector<std::string>> continuations(const std::vector<const EvalTask*>& tasks, const LoadedModel& m) {
  SLUICE_ASSIGN(auto executor, m.make_executor());
  sched::Scheduler scheduler(m.scheduler, m.tokenizer);
  const SteadyClock clock;
  std::vector<std::shared_ptr<TextSink>> sinks;
  for (const EvalTask* t : tasks) {
    sched::Submission s;
    s.prompt = t->prompt;
    s.max_tokens = t->max_tokens;
    s.sampling.temperature = 0;
    s.sink = sinks.emplace_back(std::make_shared<TextSink>());
    s.cancelled = std::make_shared<std::atomic<bool>>(false);
    s.arrived_us = clock.now_us();
    scheduler.admit(std::move(s));
  }
  sched::StepResult result;
  sched::StepOutcome outcome;
  while (!scheduler.idle()) {
    outcome.clear();
    const TimeUs begin = clock.now_us();
    SLUICE_TRY(executor->submit(scheduler.plan(begin)));
    SLUICE_TRY(executor->collect(result));
    const TimeUs end = clock.now_us();
    scheduler.commit(result, end, end - begin, outcome);
    for (sched::Delivery& d : outcome.deliveries) d.sink->push(std::move(d.event));
  }
  std::vector<std::string> out;
  for (const auto& s : sinks) out.push_back(s->text);
  return out;
}

Result<double> choose(const EvalTask& task, TextScorer& scorer, bool reference) {
  int best = 0;
  double best_nll = 0;
  for (size_t i = 0; i < task.choices.size(); ++i) {
    std::vector<TokenScore> scores;
    SLUICE_TRY(scorer.score(task.choices[i].tokens, task.choices[i].first, scores));
    const double nll = std::accumulate(scores.begin(), scores.end(), 0.0, [&](double sum, const TokenScore& s) { return sum + (reference ? s.reference_nll : s.nll); });
    if (i > 0 && nll >= best_nll) continue;
    best = int(i);
    best_nll = nll;
  }
  return best == task.right ? 1.0 : 0.0;
}

// A needle is a sentence with a number; the question is its beginning again, at the end of the context.
struct Needle {
  std::string sentence, question, answer;
};

Needle make_needle(int i) {
  static constexpr const char* kPlaces[] = {"Aldermoor", "Brackwater", "Corvendale", "Dunmarrow", "Elstanwick"};
  const std::string place = kPlaces[size_t(i) % std::size(kPlaces)];
  const std::string number = std::to_string(1000 + (i * 2741 + 377) % 9000);
  const std::string begin = "The secret number of " + place + " is";
  return {" " + begin + " " + number + ". Remember it. ", "\n\nQuestion: What is the secret number of " + place + "?\nAnswer: " + begin, " " + number};
}

}  // namespace

Result<std::vector<double>> solve_tasks(const std::vector<EvalTask>& tasks, const LoadedModel& model, TextScorer& scorer, bool reference) {
  std::vector<double> solved(tasks.size());
  std::vector<const EvalTask*> open;
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (tasks[i].match != Match::kChoice) open.push_back(&tasks[i]);
    else {
      SLUICE_ASSIGN(solved[i], choose(tasks[i], scorer, reference));
    }
  }
  if (open.empty()) return solved;
  SLUICE_ASSIGN(const std::vector<std::string> texts, continuations(open, model));
  for (size_t i = 0, next = 0; i < tasks.size(); ++i) {
    if (tasks[i].match == Match::kChoice) continue;
    const std::string text = trimmed(texts[next++]), answer = trimmed(tasks[i].answer);
    solved[i] = (tasks[i].match == Match::kExact ? text == answer : text.find(answer) != std::string::npos) ? 1.0 : 0.0;
  }
  return solved;
}

Result<std::vector<NeedleRow>> find_needles(const std::vector<int32_t>& text, int context, const LoadedModel& model, TextScorer& scorer) {
  constexpr double kDepths[] = {0.05, 0.25, 0.5, 0.75, 0.95};
  constexpr int kNeedles = 3;
  std::vector<NeedleRow> rows;
  const auto encode = [&](const std::string& s) { return model.tokenizer->encode(s, {}); };
  int number = 0;
  for (const double depth : kDepths) {
    NeedleRow row;
    row.depth = depth;
    std::vector<double> nll, reference_nll;
    for (int i = 0; i < kNeedles; ++i, ++number) {
      const Needle needle = make_needle(number);
      const auto sentence = encode(needle.sentence), question = encode(needle.question), answer = encode(needle.answer);
      const int filling = context - int(sentence.size() + question.size() + answer.size()) - 1;
      if (filling < 16 || text.empty()) return invalid(std::to_string(context) + " tokens leave no room for a text around the needle", "--needle-context");
      EvalText t;
      if (model.tokenizer->add_bos() && model.tokenizer->bos() >= 0) t.tokens.push_back(model.tokenizer->bos());
      const int at = int(depth * filling);
      for (int k = 0; k < filling; ++k) {
        if (k == at) t.tokens.insert(t.tokens.end(), sentence.begin(), sentence.end());
        t.tokens.push_back(text[size_t(k) % text.size()]);
      }
      t.tokens.insert(t.tokens.end(), question.begin(), question.end());
      t.first = int(t.tokens.size());
      t.tokens.insert(t.tokens.end(), answer.begin(), answer.end());
      std::vector<TokenScore> scores;
      SLUICE_TRY(scorer.score(t.tokens, t.first, scores));
      row.of += 1;
      row.found += std::all_of(scores.begin(), scores.end(), [](const TokenScore& s) { return s.is_top; });
      row.reference_found += scorer.has_reference() && std::all_of(scores.begin(), scores.end(), [](const TokenScore& s) { return s.is_reference_top; });
      for (const TokenScore& s : scores) nll.push_back(s.nll), reference_nll.push_back(s.reference_nll);
    }
    row.nll = estimate(nll).mean;
    row.reference_nll = estimate(reference_nll).mean;
    rows.push_back(row);
  }
  return rows;
}

}  // namespace sluice::lab
