#include "lab/bench_mixed.h"

#include <algorithm>
#include <memory>

#include "base/rng.h"

namespace sluice::lab {
namespace {

constexpr int kDecoded = 256;  // tokens by which a decode grows beside a repeat's prompts, about; the cache must have room for them

// Notes when its sequence's tokens come.
class GapSink final : public sched::ResponseSink {
 public:
  GapSink(const TimeUs* now, std::vector<double>* gaps_s) : now_(now), gaps_s_(gaps_s) {}
  void push(sched::TokenEvent&& e) noexcept override {
    if (e.has_token && last_ > 0) gaps_s_->push_back(double(*now_ - last_) * 1e-6);
    if (e.has_token) last_ = *now_;
    ended_ |= e.finish != sched::FinishReason::kNone;
  }
  bool started() const { return last_ > 0; }
  bool ended() const { return ended_; }

 private:
  const TimeUs* now_;
  std::vector<double>* gaps_s_;
  TimeUs last_ = 0;
  bool ended_ = false;
};

// What was timed: all repeats of one way.
struct Timed {
  std::vector<double> steps_s, gaps_s, rates, prompt_rates;
  double seconds = 0, flops = 0, bytes = 0;
  int prompts = 0;
};

class MixedRun {
 public:
  MixedRun(const LoadedModel& m, const MixedOptions& o, int batch, exec::DeviceExecutor* executor, sched::SchedulerOptions scheduler, Distribution prompts)
      : m_(m), o_(o), batch_(batch), executor_(executor), prompts_(prompts), rng_(o.seed), scheduler_(std::move(scheduler), nullptr) {}

  // One repeat. Errors: a device's fault.
  Status run(Timed* timed) {
    now_ = clock_.now_us();
    decodes_.clear();
    for (int i = 0; i < batch_; ++i) decodes_.push_back(send(o_.context, m_.scheduler.max_context - o_.context));
    while (!std::all_of(decodes_.begin(), decodes_.end(), [](const Sent& s) { return s.sink->started(); })) SLUICE_TRY(step(nullptr));
    decode_gaps_.clear();
    const TimeUs begin = clock_.now_us();
    Window w;
    Sent prompt = send(prompts_.draw(rng_), 1);
    while (!decodes_.front().sink->ended()) {
      SLUICE_TRY(step(&w));
      if (!prompt.sink->ended()) continue;
      if (++w.prompts == o_.prompts) break;
      prompt = send(prompts_.draw(rng_), 1);
    }
    const double seconds = double(clock_.now_us() - begin) * 1e-6;
    if (timed) keep(*timed, w, seconds);
    for (Sent& s : decodes_) s.cancelled->store(true);
    prompt.cancelled->store(true);
    while (!scheduler_.idle() || scheduler_.num_in_flight() > 0) SLUICE_TRY(step(nullptr));
    return {};
  }

 private:
  struct Sent {
    std::shared_ptr<GapSink> sink;
    std::shared_ptr<std::atomic<bool>> cancelled;
  };
  struct Window {
    std::vector<double> steps_s;
    int64_t prompt_tokens = 0, decoded = 0;
    double flops = 0, bytes = 0;
    int prompts = 0;
  };

  Sent send(int prompt_tokens, int max_tokens) {
    Sent sent{std::make_shared<GapSink>(&now_, max_tokens > 1 ? &decode_gaps_ : &prompt_gaps_), std::make_shared<std::atomic<bool>>(false)};
    sched::Submission s;
    for (int i = 0; i < std::min(prompt_tokens, m_.scheduler.max_context - 1); ++i) s.prompt.push_back(int32_t(rng_.below(uint32_t(m_.scheduler.vocab))));
    s.max_tokens = std::min(max_tokens, m_.scheduler.max_context - int(s.prompt.size()));
    s.ignore_eos = true;
    s.sampling.temperature = 0;
    s.sink = sent.sink;
    s.cancelled = sent.cancelled;
    s.arrived_us = clock_.now_us();
    scheduler_.admit(std::move(s));
    return sent;
  }

  // As the engine steps: plans while the executor takes more, else waits for the oldest.
  Status step(Window* w) {
    outcome_.clear();
    scheduler_.reap_cancelled(clock_.now_us(), outcome_);
    while (!scheduler_.idle() && scheduler_.num_in_flight() < executor_->depth()) {
      const sched::BatchPlan& plan = scheduler_.plan(clock_.now_us());
      if (plan.empty()) break;
      if (w) count(plan, *w);
      SLUICE_TRY(executor_->submit(plan));
    }
    if (scheduler_.num_in_flight() == 0) return {};
    SLUICE_TRY(executor_->collect(result_));
    const TimeUs ended = clock_.now_us();
    if (w) w->steps_s.push_back(double(ended - now_) * 1e-6);
    scheduler_.commit(result_, ended, ended - now_, outcome_);
    now_ = ended;
    if (w) w->prompt_tokens += outcome_.computed_prompt_tokens;
    for (sched::Delivery& d : outcome_.deliveries) {
      if (w && d.event.has_token) ++w->decoded;
      d.sink->push(std::move(d.event));
    }
    return {};
  }

  void count(const sched::BatchPlan& plan, Window& w) const {
    w.bytes += double(m_.memory.weights_bytes);
    for (int s = 0; s < plan.num_sequences(); ++s) {
      const int count = plan.query_begin[size_t(s) + 1] - plan.query_begin[size_t(s)];
      w.flops += count * token_flops(m_.model->spec(), plan.kv_len[size_t(s)] - count / 2.0, count == 1);
      w.bytes += double(plan.kv_len[size_t(s)]) * double(m_.memory.kv_bytes_per_token);
    }
  }

  void keep(Timed& t, const Window& w, double seconds) const {
    t.steps_s.insert(t.steps_s.end(), w.steps_s.begin(), w.steps_s.end());
    t.gaps_s.insert(t.gaps_s.end(), decode_gaps_.begin(), decode_gaps_.end());
    t.rates.push_back(double(w.decoded - w.prompts) / seconds);
    t.prompt_rates.push_back(double(w.prompt_tokens) / seconds);
    t.seconds += seconds;
    t.flops += w.flops;
    t.bytes += w.bytes;
    t.prompts += w.prompts;
  }

  const LoadedModel& m_;
  const MixedOptions& o_;
  int batch_;
  exec::DeviceExecutor* executor_;
  Distribution prompts_;
  Rng rng_;
  sched::Scheduler scheduler_;
  sched::StepResult result_;
  sched::StepOutcome outcome_;
  SteadyClock clock_;
  TimeUs now_ = 0;                 // when the last step ended
  std::vector<Sent> decodes_;
  std::vector<double> decode_gaps_, prompt_gaps_;
};

MixedRow row_of(const Timed& t, int batch, int context, const char* chunks, const MachineCeilings& machine) {
  MixedRow r;
  r.name = "mixed";
  r.batch = batch;
  r.context = context;
  r.chunks = chunks;
  const auto median = [](std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v[v.size() / 2];
  };
  r.tok_s = median(t.rates);
  r.tok_s_min = *std::min_element(t.rates.begin(), t.rates.end());
  r.tok_s_max = *std::max_element(t.rates.begin(), t.rates.end());
  r.prompt_tok_s = median(t.prompt_rates);
  r.prompts = t.prompts;
  const Percentiles step = percentiles_ms(t.steps_s), gap = percentiles_ms(t.gaps_s);
  r.step_ms = step.p50;
  r.step_p99_ms = step.p99;
  r.gap_p50_ms = gap.p50;
  r.gap_p99_ms = gap.p99;
  r.gb_s = t.bytes / t.seconds * 1e-9;
  r.gflop_s = t.flops / t.seconds * 1e-9;
  r.pct_of_bandwidth = machine.read_gb_s > 0 ? 100 * r.gb_s / machine.read_gb_s : 0;
  r.pct_of_compute = machine.compute_gflop_s() > 0 ? 100 * r.gflop_s / machine.compute_gflop_s() : 0;
  return r;
}

}  // namespace

Result<std::vector<MixedRow>> bench_mixed(const LoadedModel& m, const MixedOptions& o, const MachineCeilings& machine) {
  SLUICE_ASSIGN(const Distribution prompts, Distribution::parse(o.prompt_tokens, "--prompt-tokens"));
  SLUICE_ASSIGN(auto executor, m.make_executor());
  SLUICE_TRY(executor->warm_up());
  std::vector<MixedRow> rows;
  for (int batch : o.batches) {
    const int64_t wanted = int64_t(batch) * (o.context + kDecoded), room = int64_t(m.scheduler.total_blocks) * m.scheduler.block_tokens;
    if (wanted > room) return invalid(std::to_string(batch) + " sequences of " + std::to_string(o.context + kDecoded) + " tokens are over the cache of " + std::to_string(room), "--batch");
    sched::SchedulerOptions bounded = m.scheduler, unbounded = m.scheduler;
    bounded.max_sequences = unbounded.max_sequences = std::max(batch + 1, m.scheduler.max_sequences);
    bounded.prefix_cache = unbounded.prefix_cache = false;
    SLUICE_TRY(set_objective("latency", o.step_ms, m.model->kernels().host_memory, bounded));
    SLUICE_TRY(set_objective("throughput", 0, m.model->kernels().host_memory, unbounded));
    MixedRun runs[] = {{m, o, batch, executor.get(), bounded, prompts}, {m, o, batch, executor.get(), unbounded, prompts}};
    Timed timed[2];
    for (int repeat = -1; repeat < o.repeats; ++repeat)  // the first warms up, and teaches the cost model
      for (int i = 0; i < 2; ++i) SLUICE_TRY(runs[i].run(repeat < 0 ? nullptr : &timed[i]));
    for (int i = 0; i < 2; ++i) rows.push_back(row_of(timed[i], batch, o.context, i == 0 ? "bounded" : "unbounded", machine));
  }
  return rows;
}

}  // namespace sluice::lab
