#include "lab/bench_speculate.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "lab/completion.h"
#include "lab/oracle_executor.h"
#include "lab/verify_cost.h"

namespace sluice::lab {
namespace {

constexpr int kRepeats = 15, kContext = 256, kTurns = 3;
constexpr int kSpareBlocks = 4;   // what a sequence holds beyond its tokens: drafts, and blocks that are given back after a step
constexpr int kRunsBetween = 4;   // with drafts, between two without
constexpr double kWorth = 1.05;   // what is less is not worth a second model

struct Counts { uint64_t tried = 0, accepted = 0; };

// Tokens of the longest step whose cost is measured, with those before it.
int step_context(const SpeculateBenchOptions& o) { return kContext + 1 + (o.drafts.empty() ? 0 : *std::max_element(o.drafts.begin(), o.drafts.end())); }

Counts counts_of(const draft::Speculator* s) {
  Counts out;
  if (!s) return out;
  for (size_t i = 0; i < draft::kNumSources; ++i)
    for (size_t j = 0; j < sched::kMaxDrafts; ++j) {
      out.tried += s->counters().tried[i][0][j].load();
      out.accepted += s->counters().accepted[i][0][j].load();
    }
  return out;
}

// The median, and the order statistics between which it lies in 95 of 100 cases.
Ratio median_of(std::vector<double> v) {
  if (v.empty()) return {};
  std::sort(v.begin(), v.end());
  const double n = double(v.size()), half = 0.98 * std::sqrt(n);
  const auto at = [&](double i) { return v[size_t(std::clamp(i, 0.0, n - 1))]; };
  const double middle = v.size() % 2 ? v[v.size() / 2] : (v[v.size() / 2 - 1] + v[v.size() / 2]) / 2;
  return {middle, at(std::floor(n / 2 - half)), at(std::ceil(n / 2 + half) - 1)};
}

// One way to run, and what it came to over all prompts.
struct Way {
  int k = 0;                     // drafts at most; -1: the control decides; 0: none
  draft::Speculator* speculator = nullptr;
  Counts counts = {};
  int64_t tokens = 0, steps = 0;
  std::vector<double> speedups = {};
  double rate = 0;               // of the prompt in hand
};

class Bench {
 public:
  Bench(LoadedModel& target, const LoadedModel* draft, const SpeculateBenchOptions& o) : target_(target), draft_(draft), o_(o) {}

  Result<SpeculateReport> run(const std::vector<std::vector<int32_t>>& prompts) {
    report_.draft = draft_ ? draft_->name : "ngram";
    SLUICE_TRY(measure_costs());
    SLUICE_TRY(make_ways());
    for (const auto& prompt : prompts) SLUICE_TRY(run_prompt(prompt));
    for (const Way& w : ways_) add_row(w);
    ways_.clear();  // with their executors, whose memory the comparison's may need
    runner_.reset();
    for (auto& s : speculators_) s.reset();
    report_.prompts = int(prompts.size());
    if (draft_ && o_.temperature > 0) SLUICE_TRY(compare(prompts));
    advise();
    return report_;
  }

 private:
  Status measure_costs() {
    std::vector<int> rows{1};
    for (const int k : o_.drafts) rows.push_back(k + 1);
    SLUICE_ASSIGN(step_ms_, step_ms_by_rows(target_, rows, kContext, kRepeats));
    report_.step_ms = step_ms_[0];
    if (!draft_) return {};
    const int one[] = {1};
    std::vector<double> ratios;  // the two in turn: the machine's memory is not equally fast all the time
    for (int i = 0; i < kTurns; ++i) {
      SLUICE_ASSIGN(const auto draft_ms, step_ms_by_rows(*draft_, one, kContext, kRepeats));
      SLUICE_ASSIGN(const auto target_ms, step_ms_by_rows(target_, one, kContext, kRepeats));
      ratios.push_back(draft_ms[0] / target_ms[0]);
    }
    report_.c = median_of(ratios).value;
    return {};
  }

  Status make_ways() {
    SpeculateOptions s;
    s.suffix = false;  // prompts are run again and again: earlier replies would be copied
    if (draft_) s.draft = draft_->name;
    s.oracle = o_.oracle;
    s.mode = draft_ ? "draft" : "ngram";
    SLUICE_ASSIGN(speculators_[0], make_speculator(target_, draft_, s, &clock_));
    if (draft_ && o_.oracle == 0) s.mode = "auto";  // what is sure to come, lookups would find at once
    SLUICE_ASSIGN(speculators_[1], make_speculator(target_, draft_, s, &clock_));
    for (const int k : o_.drafts) ways_.push_back({k, speculators_[0].get()});
    ways_.push_back({-1, speculators_[1].get()});
    SLUICE_ASSIGN(auto executor, target_.make_executor());
    SLUICE_TRY(executor->warm_up());
    runner_ = std::make_unique<CompletionRunner>(target_, std::move(executor));
    return {};
  }

  Result<Completion> complete(const std::vector<int32_t>& prompt, std::shared_ptr<draft::Speculator> speculator) {
    sched::Submission s;
    s.prompt = prompt;
    s.max_tokens = int(std::min<int64_t>(o_.max_tokens, target_.scheduler.max_context - int64_t(prompt.size())));
    s.sampling.temperature = float(o_.temperature);
    s.sampling.seed = o_.seed;
    if (o_.oracle > 0) make_sure(s.sampling), s.ignore_eos = true;
    runner_->set_speculator(std::move(speculator));
    return runner_->run(std::move(s), false, nullptr);
  }

  // Once to warm the caches, then without and with in turn; a run with drafts is held against the mean of those beside it.
  Status run_prompt(const std::vector<int32_t>& prompt) {
    SLUICE_ASSIGN(Completion plain, complete(prompt, nullptr));
    if (plain.ids.size() < 2) return {};
    SLUICE_ASSIGN(plain, complete(prompt, nullptr));
    texts_.push_back(prompt);
    texts_.back().insert(texts_.back().end(), plain.ids.begin(), plain.ids.end());
    report_.output_tokens += int(plain.ids.size());
    double before = plain.decode_tok_s;
    for (size_t begin = 0; begin < ways_.size(); begin += kRunsBetween) {
      const size_t end = std::min(begin + kRunsBetween, ways_.size());
      for (size_t i = begin; i < end; ++i) SLUICE_TRY(run_way(prompt, plain.ids, ways_[i]));
      SLUICE_ASSIGN(const Completion again, complete(prompt, nullptr));
      for (size_t i = begin; i < end; ++i) ways_[i].speedups.push_back(ways_[i].rate / ((before + again.decode_tok_s) / 2));
      before = again.decode_tok_s;
    }
    return {};
  }

  Status run_way(const std::vector<int32_t>& prompt, const std::vector<int32_t>& expected, Way& w) {
    const auto& speculator = speculators_[w.speculator == speculators_[0].get() ? 0 : 1];
    speculator->set_fixed(w.k);
    const Counts before = counts_of(w.speculator);
    SLUICE_ASSIGN(const Completion c, complete(prompt, speculator));
    const Counts after = counts_of(w.speculator);
    w.counts.tried += after.tried - before.tried;
    w.counts.accepted += after.accepted - before.accepted;
    w.tokens += int64_t(c.ids.size()) - 1;
    w.steps += c.decode_steps;
    w.rate = c.decode_tok_s;
    report_.differing += c.ids != expected;
    return {};
  }

  void add_row(const Way& w) {
    SpeculateRow r;
    r.k = w.k;
    r.alpha = w.counts.tried ? double(w.counts.accepted) / double(w.counts.tried) : 0;
    r.accepted_per_step = w.steps ? double(w.tokens) / double(w.steps) : 0;
    r.measured_speedup = median_of(w.speedups);
    if (w.k < 0) {
      report_.adaptive = r;
      return;
    }
    const size_t i = report_.rows.size();
    r.v_k = step_ms_[i + 1] / step_ms_[0];
    const double tokens = r.alpha < 1 ? (1 - std::pow(r.alpha, w.k + 1)) / (1 - r.alpha) : w.k + 1;
    r.predicted_speedup = tokens / (w.k * report_.c + r.v_k);
    report_.rows.push_back(r);
  }

  Status compare(const std::vector<std::vector<int32_t>>& prompts) {
    sample::SamplingParams p;
    p.temperature = float(o_.temperature);
    p.seed = o_.seed;
    int places = 0;
    for (size_t i = 0; i < texts_.size(); ++i) {
      SLUICE_ASSIGN(const RuleAcceptance a, compare_rules(target_, *draft_, texts_[i], int(prompts[i].size()), p));
      report_.alpha_coupled += a.coupled * a.places;
      report_.alpha_rejection += a.rejection * a.places;
      places += a.places;
    }
    if (places > 0) report_.alpha_coupled /= places, report_.alpha_rejection /= places;
    return {};
  }

  void advise() {
    const SpeculateRow* best = nullptr;
    for (const SpeculateRow& r : report_.rows)
      if (r.measured_speedup.value > 1 && (!best || r.measured_speedup.value > best->measured_speedup.value)) best = &r;
    report_.best_k = best ? best->k : 0;
    const double adaptive = report_.adaptive.measured_speedup.value;
    const double gain = std::max(best ? best->measured_speedup.value : 0, adaptive);
    char text[400];
    if (gain >= kWorth)
      std::snprintf(text, sizeof text, "Use it (--%s): with %s replies to these prompts come %.2f times as fast at one at a time (%.2f when left to decide); %.0f %% of drafts stand.",
                    draft_ ? "draft MODEL" : "speculate ngram", report_.draft.c_str(), gain, adaptive, 100 * (best ? best->alpha : report_.adaptive.alpha));
    else
      std::snprintf(text, sizeof text, "Do not use %s for such prompts: at best %.2f times as fast; %.0f %% of drafts stand, and below 60 %% it rarely pays.%s",
                    report_.draft.c_str(), gain, 100 * (report_.rows.empty() ? 0 : report_.rows[0].alpha),
                    draft_ ? " Lookups (--speculate ngram) cost nothing: try --draft ngram here." : "");
    report_.advice = text;
  }

  LoadedModel& target_;
  const LoadedModel* draft_;
  const SpeculateBenchOptions& o_;
  SteadyClock clock_;
  std::shared_ptr<draft::Speculator> speculators_[2];  // of the fixed ways, of the adaptive one
  std::unique_ptr<CompletionRunner> runner_;
  std::vector<Way> ways_;
  std::vector<std::vector<int32_t>> texts_;
  std::vector<double> step_ms_;   // by rows: 1, then k + 1
  SpeculateReport report_;
};

}  // namespace

Result<std::vector<std::string>> read_prompts(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) return Error{ErrorCode::kNotFound, path + ": cannot be read", "--data"};
  std::vector<std::string> out;
  if (!path.ends_with(".jsonl")) {
    std::stringstream text;
    text << in.rdbuf();
    out.push_back(text.str());
  } else {
    int number = 0;
    for (std::string line; std::getline(in, line);) {
      ++number;
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      const auto j = nlohmann::json::parse(line, nullptr, false);
      if (!j.is_object() || !j.contains("prompt") || !j["prompt"].is_string()) return bad_file(path + ": line " + std::to_string(number) + ": no object with a string \"prompt\"");
      out.push_back(j["prompt"].get<std::string>());
    }
  }
  std::erase_if(out, [](const std::string& s) { return s.empty(); });
  if (out.empty()) return bad_file(path + ": no prompts in it");
  return out;
}

int bench_blocks(int64_t longest, const SpeculateBenchOptions& o, int block_tokens) {
  const int64_t tokens = std::max<int64_t>(longest + o.max_tokens, step_context(o));
  return int((tokens + block_tokens - 1) / block_tokens) + kSpareBlocks;
}

Result<LoadedModel> with_bench_cache(const LoadedModel& target, LoadOptions load, const DraftNeeds& draft, const std::vector<std::vector<int32_t>>& prompts,
                                     const SpeculateBenchOptions& o) {
  size_t longest = 0;
  for (const auto& p : prompts) longest = std::max(longest, p.size());
  const int block_tokens = target.device.block_tokens, blocks = std::min(bench_blocks(int64_t(longest), o, block_tokens), target.memory.total_blocks);
  load.kv_memory = std::to_string(uint64_t(blocks) * uint64_t(block_tokens) * target.memory.kv_bytes_per_token);
  return reconfigure(target, load, target.memory.available_bytes, draft);
}

Result<SpeculateReport> bench_speculate(LoadedModel& target, const LoadedModel* draft, const std::vector<std::vector<int32_t>>& prompts, const SpeculateBenchOptions& o) {
  for (const LoadedModel* m : {static_cast<const LoadedModel*>(&target), draft})
    if (m && m->scheduler.max_context < step_context(o))
      return invalid("steps are measured with " + std::to_string(step_context(o)) + " tokens, and " + m->name + " can have " + std::to_string(m->scheduler.max_context) +
                     " here (--context, --kv-memory)", "--context");
  for (const auto& p : prompts) SLUICE_TRY(sched::Scheduler::fits(target.scheduler, int64_t(p.size()), 2));
  return Bench(target, draft, o).run(prompts);
}

}  // namespace sluice::lab
