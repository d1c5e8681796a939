// The tuner's steps: what is tried of pools, cache and batching, quantisation, step time and speculation.
#include <algorithm>
#include <cmath>

#include "lab/evaluate.h"
#include "lab/pools.h"
#include "lab/tuner.h"

namespace sluice::lab {
namespace {

constexpr size_t kJudgedTokens = 4096;  // of the user's prompts

}  // namespace

Status Tuner::pools() {
  const auto batch = std::count_if(requests_.begin(), requests_.end(), [](const UserRequest& x) { return x.batch; });
  if (batch == 0 || size_t(batch) == requests_.size()) {
    skip("pools", "all requests are of one class, so one pool with every thread serves them best.");
    return {};
  }
  TuneStep step;
  step.name = "pools";
  const std::string kv = o_.load.kv_memory.empty() && o_.memory.empty() ? "" : ",kv=" + std::to_string(loaded_.memory.kv_bytes / 2);
  std::vector<std::vector<FlagValue>> choices;
  if (const int threads = loaded_.device.threads; threads >= 2)
    choices.push_back({{"pool", "interactive:threads=" + std::to_string(threads / 2) + kv}, {"pool", "batch:threads=" + std::to_string(threads - threads / 2) + kv}});
  for (const char* weight : {"1", "4"}) choices.push_back({{"pool", std::string("interactive:weight=") + weight + kv}, {"pool", "batch:weight=1" + kv}});
  SLUICE_TRY(choose(step, choices));
  end_step(std::move(step));
  return {};
}

Status Tuner::cache_and_batching() {
  TuneStep step;
  step.name = "cache and batching";
  const auto one = [](const char* flag, int value) { return std::vector<FlagValue>{{flag, std::to_string(value)}}; };
  std::vector<std::vector<FlagValue>> choices;
  for (int stood = 0; stood < current_.load.max_sequences;) {  // while more is better
    choices.clear();
    for (const int n : {stood ? 0 : current_.load.max_sequences / 2, current_.load.max_sequences * 2})
      if (n >= 1 && n <= 4096 && std::min(n, current_.load.max_sequences) < int(load_.requests.size())) choices.push_back(one("max-sequences", n));
    stood = current_.load.max_sequences;
    if (!choices.empty()) SLUICE_TRY(choose(step, choices));
  }
  choices.clear();
  const int tokens = step_tokens(current_.load, loaded_.model->kernels());
  for (const int n : {tokens / 2, tokens * 2})
    if (n >= current_.load.max_sequences && n <= 16384) choices.push_back(one("max-step-tokens", n));
  SLUICE_TRY(choose(step, choices));
  choices.clear();
  for (const int n : {16, 32, 64})
    if (n != block_tokens_of(current_.load)) choices.push_back(one("block-tokens", n));
  if (current_.load.kv_type != "f32") choices.push_back({{"kv-type", "f32"}});  // loses nothing; of the others that is not known
  SLUICE_TRY(choose(step, choices));
  end_step(std::move(step));
  return {};
}

// Another file of the same model and another type of cache may be faster; whether they are as good the user's own prompts say.
Status Tuner::quantisation() {
  TuneStep step;
  step.name = "quantisation";
  if (o_.data.path.ends_with(".csv")) {
    skip("quantisation", "a trace has no text to judge other files or types of cache on.");
    return {};
  }
  std::vector<std::vector<FlagValue>> files, types;
  for (const std::string& path : o_.candidates) files.push_back({{"model", path}});
  SLUICE_TRY(choose_judged(step, files));
  for (const char* type : {"fp8", "int8"})
    if (current_.load.kv_type != type) types.push_back({{"kv-type", type}});
  SLUICE_TRY(choose_judged(step, types));
  end_step(std::move(step));
  return {};
}

Status Tuner::choose_judged(TuneStep& step, const std::vector<std::vector<FlagValue>>& choices) {
  std::vector<std::vector<FlagValue>> good;
  std::vector<std::string> found;
  for (const auto& flags : choices) {
    TuneCandidate c;
    c.flags = flags;
    c.setting = as_flags(flags);
    Setting changed = current_;
    set_flags(flags, changed);
    if (time_is_up()) {
      c.why = "not judged: the time was up";
    } else if (auto r = judge(changed); !r.ok()) {
      c.why = "not possible: " + r.error().message;
    } else {
      c.judged = "KL divergence " + shown(r->kl.mean) + " +- " + shown(r->kl.error, 2) + ", same most likely token " + shown(100 * r->top1.mean, 4) + " %, over " + std::to_string(r->tokens) + " tokens";
      if (r->passed()) {
        good.push_back(flags);
        found.push_back(c.judged);
        continue;
      }
      c.why = "the gate " + o_.gate + " stopped it";
    }
    say(step.name + ": " + c.setting + ": " + c.why + (c.judged.empty() ? "" : " (" + c.judged + ")"));
    step.candidates.push_back(std::move(c));
  }
  if (good.empty()) return {};
  const size_t from = step.candidates.size();
  SLUICE_TRY(choose(step, good));
  for (size_t i = from; i < step.candidates.size(); ++i) step.candidates[i].judged = found[i - from];
  return {};
}

Result<EvalReport> Tuner::judge(const Setting& setting) {
  EvalReport r;
  SLUICE_ASSIGN(r.gate, parse_gate(o_.gate));
  const uint64_t available = available_memory(loaded_.model->kernels());
  SLUICE_ASSIGN(const LoadedModel* file, file_of(setting));
  SLUICE_ASSIGN(const LoadedModel changed, reconfigure(*file, setting.load, available));
  LoadOptions as_begun = setting.load;
  as_begun.kv_type = beginning_.load.kv_type;
  SLUICE_ASSIGN(const LoadedModel reference, reconfigure(loaded_, as_begun, available));
  SLUICE_ASSIGN(auto scorer, TextScorer::make(changed, &reference));
  r.has_reference = true;
  for (const UserRequest& x : requests_) {
    if (r.scores.size() >= kJudgedTokens) break;
    const size_t n = std::min(x.prompt.size(), kJudgedTokens + 1 - r.scores.size());
    if (n > 1) SLUICE_TRY(scorer->score({x.prompt.data(), n}, 1, r.scores));
  }
  summarise_scores(r);
  apply_gate(r);
  return r;
}

Status Tuner::chunk_and_step_time() {
  TuneStep step;
  step.name = "chunk and step time";
  std::vector<std::vector<FlagValue>> choices;
  if (latency_) {
    SLUICE_ASSIGN(auto trial, start(current_));
    SLUICE_ASSIGN(const TrialFigures f, trial->run(load_));
    for (const double times : {1.5, 2.0, 3.0, 5.0}) {
      const double ms = std::max(0.1, std::round(10 * times * f.gap_ms.p50) / 10);
      if (ms <= 60000) choices.push_back({{"step-ms", shown(ms, 4)}});
    }
    choices.push_back({{"objective", "throughput"}});
  } else {
    choices.push_back({{"objective", "latency"}});
  }
  SLUICE_TRY(choose(step, choices));
  end_step(std::move(step));
  return {};
}

// Drafts change no text, so that speed alone decides.
Status Tuner::speculation() {
  TuneStep step;
  step.name = "speculation";
  std::vector<std::vector<FlagValue>> choices;
  for (const std::string mode : {"off", "ngram", "auto"})
    if (mode != current_.speculate.chosen() && (mode != "auto" || draft_)) choices.push_back({{"speculate", mode}});
  SLUICE_TRY(choose(step, choices));
  end_step(std::move(step));
  return {};
}

}  // namespace sluice::lab
