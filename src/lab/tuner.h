// Tuner: what tune() is made of. One load, made of the user's requests; trials of settings under it, compared in pairs; and a setting
// that stands, which each step may better. One thread.
#pragma once
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "lab/evaluate.h"
#include "lab/speculation.h"
#include "lab/tune.h"

namespace sluice::lab {

class Tuner {
 public:
  explicit Tuner(const TuneOptions& o) : o_(o), beginning_{o.load, {}, o.speculate}, latency_(o.load.objective == "latency") {}
  Result<TuneReport> run();

 private:
  static constexpr int kPairs = 3, kLastPairs = 5;
  static constexpr double kLastShare = 0.12;  // of the budget, kept for the last comparison

  // What a server is started with.
  struct Setting {
    LoadOptions load;
    std::vector<std::string> pools;  // of --pool
    SpeculateOptions speculate;
  };

  // tune.cpp: the beginning, the load, and the end.
  double elapsed_s() const { return double(clock_.now_us() - began_) * 1e-6; }
  bool time_is_up() const { return elapsed_s() > (1 - kLastShare) * o_.budget_s; }
  void say(const std::string& line) const {
    if (o_.progress) o_.progress(line);
  }
  double score(const TrialFigures& f) const;  // what is compared: larger is better
  Status prepare();
  Status check_candidate(const std::string& path) const;
  Status check_gate() const;
  Status share_memory(const kernels::KernelTable& table);
  Status size_load();
  double latency_rate(int n) const { return load_.rate > 0 ? load_.rate : n / load_.requests.back().at_s; }
  void fill(int n);
  Status last_comparison();

  // tune_choice.cpp: trials and choices.
  static void set_flags(const std::vector<FlagValue>& flags, Setting& to);
  Result<const LoadedModel*> file_of(const Setting& s);
  Result<std::unique_ptr<Trial>> start(const Setting& s);
  Result<Comparison> compare(Trial& before, Trial& after, int pairs);
  // Measures one change to what stands now; the step gets it as a candidate.
  Status try_change(TuneStep& step, Trial& before, const std::vector<FlagValue>& flags);
  static bool note(TuneStep& step, TuneCandidate& c, const Comparison& x);
  // The best of the choices, if one is better, becomes what stands.
  Status choose(TuneStep& step, const std::vector<std::vector<FlagValue>>& choices);
  void end_step(TuneStep step);
  void skip(const char* name, const std::string& why);

  // tune_steps.cpp: the steps, in their order.
  Status pools();
  Status cache_and_batching();
  Status quantisation();
  Status chunk_and_step_time();
  Status speculation();
  // Choices that may cost quality: those that the gate lets through are measured.
  Status choose_judged(TuneStep& step, const std::vector<std::vector<FlagValue>>& choices);
  // A setting held against the beginning, token by token on the user's own prompts. Errors: as TextScorer.
  Result<EvalReport> judge(const Setting& setting);

  const TuneOptions& o_;
  Setting beginning_, current_;
  bool latency_;
  LoadedModel loaded_;           // as it began
  std::map<std::string, LoadedModel> others_;  // candidates, by path
  std::optional<LoadedModel> draft_;
  std::vector<UserRequest> requests_;
  TrialLoad load_;
  std::vector<double> learned_;  // of steps, so that every trial starts knowing them
  SteadyClock clock_;
  TimeUs began_ = 0;
  TuneReport r_;
};

std::string shown(double value, int digits = 3);
std::string as_flags(const std::vector<FlagValue>& flags);  // "--block-tokens 32 --..."

}  // namespace sluice::lab
