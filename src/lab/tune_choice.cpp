// The tuner's trials: a change measured against what stands, and the best of several taken.
#include <algorithm>
#include <charconv>

#include "lab/pools.h"
#include "lab/tuner.h"

namespace sluice::lab {

std::string as_flags(const std::vector<FlagValue>& flags) {
  std::string out;
  for (const auto& [flag, value] : flags) out += (out.empty() ? "--" : " --") + flag + " " + value;
  return out;
}

void Tuner::set_flags(const std::vector<FlagValue>& flags, Setting& to) {
  LoadOptions& o = to.load;
  const auto number = [](const std::string& text) {
    int v = 0;
    std::from_chars(text.data(), text.data() + text.size(), v);
    return v;
  };
  for (const auto& [flag, value] : flags) {
    if (flag == "max-sequences") o.max_sequences = number(value);
    else if (flag == "block-tokens") o.block_tokens = number(value);
    else if (flag == "max-step-tokens") o.max_step_tokens = number(value);
    else if (flag == "threads") o.threads = number(value);
    else if (flag == "kv-type") o.kv_type = value;
    else if (flag == "kv-memory") o.kv_memory = value;
    else if (flag == "objective") o.objective = value;
    else if (flag == "model") o.model = value, o.random.clear();
    else if (flag == "speculate") to.speculate.mode = value;
    else if (flag == "pool") to.pools.push_back(value);
    else if (flag == "step-ms") o.step_ms = std::strtod(value.c_str(), nullptr);
    else SLUICE_CHECK(!"a flag that the tuner knows");
  }
}

Result<const LoadedModel*> Tuner::file_of(const Setting& s) {
  if (s.load.model == beginning_.load.model) return &loaded_;
  const auto at = others_.find(s.load.model);
  if (at != others_.end()) return &at->second;
  SLUICE_ASSIGN(LoadedModel m, load_model(s.load, nullptr));
  return &others_.emplace(s.load.model, std::move(m)).first->second;
}

// Pools have even parts of the cache.
Result<std::unique_ptr<Trial>> Tuner::start(const Setting& s) {
  SLUICE_ASSIGN(std::vector<PoolSpec> specs, parse_pools(s.pools));
  if (!specs.empty()) {
    SLUICE_ASSIGN(const uint64_t bytes, parse_bytes(s.load.kv_memory, "--kv-memory"));
    for (PoolSpec& p : specs) p.kv_memory = std::to_string(bytes / specs.size());
  }
  SLUICE_ASSIGN(const LoadedModel* file, file_of(s));
  SLUICE_ASSIGN(const LoadedModel m, reconfigure(*file, s.load, available_memory(file->model->kernels())));
  SLUICE_ASSIGN(auto pools, load_pools(s.load, specs, {}, nullptr, &m));
  for (LoadedPool& p : pools) {
    SLUICE_TRY(set_verification(s.speculate, p.model));
    SLUICE_ASSIGN(p.speculator, make_speculator(p.model, draft_ ? &*draft_ : nullptr, s.speculate, &clock_));
  }
  return Trial::start(std::move(pools), file == &loaded_ ? learned_ : std::vector<double>{});
}

Result<Comparison> Tuner::compare(Trial& before, Trial& after, int pairs) {
  return compare_trials(before, after, load_, pairs, [this](const TrialFigures& f) { return score(f); });
}

Status Tuner::try_change(TuneStep& step, Trial& before, const std::vector<FlagValue>& flags) {
  TuneCandidate c;
  c.flags = flags;
  c.setting = as_flags(flags);
  Setting changed = current_;
  set_flags(flags, changed);
  if (time_is_up()) {
    c.why = "not measured: the time was up";
    step.candidates.push_back(std::move(c));
    return {};
  }
  auto after = start(changed);
  if (!after.ok()) {
    c.why = "not possible: " + after.error().message;
    step.candidates.push_back(std::move(c));
    return {};
  }
  SLUICE_ASSIGN(const Comparison x, compare(before, **after, kPairs));
  const bool better = note(step, c, x);
  say(step.name + ": " + c.setting + " " + shown(c.ratio) + " times" + (better ? ", better" : ""));
  step.candidates.push_back(std::move(c));
  return {};
}

bool Tuner::note(TuneStep& step, TuneCandidate& c, const Comparison& x) {
  c.figures = x.after;
  c.ratio = x.middle();
  c.ratio_min = x.least();
  c.ratio_max = x.most();
  if (step.before.requests == 0) step.before = step.after = x.before;
  if (!x.better()) c.why = x.middle() > 1 ? "no more than runs of one configuration differ" : "not better";
  return x.better();
}

Status Tuner::choose(TuneStep& step, const std::vector<std::vector<FlagValue>>& choices) {
  SLUICE_ASSIGN(auto before, start(current_));
  SLUICE_TRY(before->run(load_));
  TuneCandidate* best = nullptr;
  const size_t from = step.candidates.size();
  for (const auto& flags : choices) SLUICE_TRY(try_change(step, *before, flags));
  for (size_t i = from; i < step.candidates.size(); ++i) {
    TuneCandidate& c = step.candidates[i];
    if (c.ratio > 0 && c.why.empty() && (!best || c.ratio > best->ratio)) best = &c;
  }
  for (size_t i = from; i < step.candidates.size(); ++i)
    if (TuneCandidate& c = step.candidates[i]; &c != best && c.why.empty()) c.why = "another was better still";
  if (!best) return {};
  best->taken = true;
  set_flags(best->flags, current_);
  for (const FlagValue& f : best->flags) std::erase_if(r_.config, [&](const FlagValue& x) { return x.first == f.first; });
  r_.config.insert(r_.config.end(), best->flags.begin(), best->flags.end());
  step.after = best->figures;
  return {};
}

void Tuner::end_step(TuneStep step) {
  std::string taken;
  for (const TuneCandidate& c : step.candidates)
    if (c.taken) taken += (taken.empty() ? "" : ", ") + c.setting;
  if (step.result.empty()) step.result = taken.empty() ? "Nothing was better than what stood." : "Taken: " + taken + ".";
  say(step.name + ": " + step.result);
  r_.steps.push_back(std::move(step));
}

void Tuner::skip(const char* name, const std::string& why) {
  TuneStep s;
  s.name = name;
  s.result = "Skipped: " + why;
  end_step(std::move(s));
}

}  // namespace sluice::lab
