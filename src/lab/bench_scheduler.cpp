#include "lab/bench_scheduler.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "base/rng.h"
#include "exec/sim_executor.h"
#include "sched/scheduler.h"

namespace sluice::lab {
namespace {

constexpr int kBlockTokens = 16, kVocab = 32000, kStepTokens = 512, kOutputTokens = 4096;
constexpr int kWarmSteps = 200;  // before timing: vectors have their sizes, the cost model has seen steps

class SchedulerBench {
 public:
  explicit SchedulerBench(const SchedulerBenchOptions& o) : o_(o), scheduler_(options(o), nullptr), executor_([](const auto&) { return 1000.0; }, 1, kBlockTokens) {}

  SchedulerCost run() {
    for (int i = 0; i < o_.sequences; ++i) admit();
    while (!full()) step(false);
    for (int i = 0; i < kWarmSteps; ++i) step(false);
    while (int(plan_.size()) < o_.steps) step(true);
    return report();
  }

 private:
  static sched::SchedulerOptions options(const SchedulerBenchOptions& o) {
    sched::SchedulerOptions s;
    s.max_sequences = o.sequences;
    s.max_step_tokens = std::max(kStepTokens, 2 * o.sequences);
    s.vocab = kVocab;
    s.max_context = 1 << 24;
    s.total_blocks = o.sequences * ((o.prompt_tokens + kOutputTokens) / kBlockTokens + 2);
    return s;
  }
  void admit() {
    sched::Submission s;
    s.id = ++admitted_;
    s.prompt.resize(size_t(o_.prompt_tokens));
    for (int32_t& t : s.prompt) t = int32_t(rng_.below(kVocab));
    s.max_tokens = o_.arrivals ? 16 + int(rng_.below(512)) : kOutputTokens;
    s.ignore_eos = true;
    s.cancelled = std::make_shared<std::atomic<bool>>(false);
    s.arrived_us = now_;
    scheduler_.admit(std::move(s));
  }
  // Every sequence runs and, where none is to arrive, decodes.
  bool full() const { return scheduler_.num_running() == o_.sequences && (o_.arrivals || tokens_now_ == o_.sequences); }

  static double now_us() { return double(std::chrono::steady_clock::now().time_since_epoch().count()) * 1e-3; }

  // Counts what it takes only with `timed`, and when the step was full.
  void step(bool timed) {
    now_ += 1000;
    const double begin = now_us();
    outcome_.clear();
    scheduler_.reap_cancelled(now_, outcome_);
    const sched::BatchPlan& plan = scheduler_.plan(now_);
    const double planned = now_us();
    SLUICE_CHECK(executor_.submit(plan).ok() && executor_.collect(result_).ok());
    tokens_now_ = plan.num_tokens();
    const bool counts = timed && full();
    const double ran = now_us();
    scheduler_.commit(result_, now_, 1000 + plan.num_tokens(), outcome_);
    const double end = now_us();
    if (counts) {
      plan_.push_back(planned - begin);
      commit_.push_back(end - ran);
      tokens_ += tokens_now_;
    }
    for (const sched::Finished& f : outcome_.finished)
      if (f.last_choice) admit();
  }

  SchedulerCost report() {
    SchedulerCost r;
    r.steps = int(plan_.size());
    std::vector<double> both(plan_.size());
    for (size_t i = 0; i < both.size(); ++i) r.mean_us += (both[i] = plan_[i] + commit_[i]) / double(both.size());
    const auto at = [](std::vector<double>& v, double q) {
      std::sort(v.begin(), v.end());
      return v[std::min(v.size() - 1, size_t(q * double(v.size())))];
    };
    r.p50_us = at(both, 0.5);
    r.p99_us = at(both, 0.99);
    r.max_us = both.back();
    r.plan_p50_us = at(plan_, 0.5);
    r.commit_p50_us = at(commit_, 0.5);
    r.tokens_a_step = double(tokens_) / r.steps;
    return r;
  }

  const SchedulerBenchOptions& o_;
  Rng rng_{11};
  sched::Scheduler scheduler_;
  exec::SimExecutor executor_;
  sched::StepResult result_;
  sched::StepOutcome outcome_;
  TimeUs now_ = 0;
  uint64_t admitted_ = 0;
  int tokens_now_ = 0;  // of the step before this moment
  int64_t tokens_ = 0;
  std::vector<double> plan_, commit_;
};

}  // namespace

Result<SchedulerCost> bench_scheduler(const SchedulerBenchOptions& o) {
  if (o.sequences < 1 || o.sequences > 4096) return invalid(std::to_string(o.sequences) + " is outside 1..4096", "--sequences");
  if (o.steps < 1 || o.steps > 1'000'000) return invalid(std::to_string(o.steps) + " is outside 1..1000000", "--steps");
  if (o.prompt_tokens < 1 || o.prompt_tokens > 1 << 16) return invalid(std::to_string(o.prompt_tokens) + " is outside 1..65536", "--prompt-tokens");
  return SchedulerBench(o).run();
}

}  // namespace sluice::lab
