#include "lab/simulate.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>

#include "lab/load_tally.h"

namespace sluice::lab {
namespace {

double wall_seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Counts in steps of one per cent: millions of gaps in a few thousand numbers.
class LogHistogram {
 public:
  void add(double us) { ++bins_[size_t(std::clamp(std::log(std::max(us, 1.0)) / kStep, 0.0, double(kBins - 1)))], ++count_; }
  void add(const LogHistogram& other) {
    for (size_t i = 0; i < kBins; ++i) bins_[i] += other.bins_[i];
    count_ += other.count_;
  }
  double quantile_ms(double q) const {
    uint64_t left = uint64_t(q * double(count_));
    for (size_t i = 0; i < kBins; ++i) {
      if (bins_[i] > left) return std::exp((double(i) + 0.5) * kStep) * 1e-3;
      left -= bins_[i];
    }
    return 0;
  }

 private:
  static constexpr double kStep = 0.01;
  static constexpr size_t kBins = 2400;  // up to e^24 us
  std::vector<uint64_t> bins_ = std::vector<uint64_t>(kBins);
  uint64_t count_ = 0;
};

class GapSink final : public sched::ResponseSink {
 public:
  GapSink(const TimeUs* now, LogHistogram* gaps) : now_(now), gaps_(gaps) {}
  void push(sched::TokenEvent&& e) noexcept override {
    if (!e.has_token) return;
    if (last_ > 0) gaps_->add(double(*now_ - last_));
    last_ = *now_;
  }

 private:
  const TimeUs* now_;
  LogHistogram* gaps_;
  TimeUs last_ = 0;
};

class Simulation {
 public:
  Simulation(const SimulateOptions& o, const std::vector<Arrival>& arrivals, const std::function<bool(size_t)>& is_batch)
      : o_(o), arrivals_(arrivals), is_batch_(is_batch), rng_(o.seed), scheduler_(o.scheduler, nullptr),
        executor_(o.cost, o.scheduler.total_blocks, o.scheduler.block_tokens), tallies_{{o.slo_ttft_ms, o.slo_tpot_ms}, {o.slo_ttft_ms, o.slo_tpot_ms}} {
    if (!o.step_cost.empty()) scheduler_.cost().restore(o.step_cost);
  }

  SimulateReport run() {
    const double begin = wall_seconds();
    for (const int c : {0, 1}) find_next(c);
    while (next_due() < arrivals_.size() || !scheduler_.idle()) {
      if (scheduler_.idle()) {
        batch_.clear();
        now_ = std::max(now_, seen_us(next_due()));
      }
      admit_due();
      step();
    }
    finish(wall_seconds() - begin);
    return std::move(r_);
  }

 private:
  TimeUs arrival_us(size_t i) const { return TimeUs(arrivals_[i].at_s * 1e6); }
  TimeUs seen_us(size_t i) const { return arrival_us(i) + TimeUs(o_.request_us); }  // by the scheduler

  int class_of(size_t i) const { return is_batch_ && is_batch_(i) ? int(sched::RequestClass::kBatch) : int(sched::RequestClass::kInteractive); }
  // next_[c]: the first request of class c that is not admitted, from where it stands.
  void find_next(int c) {
    while (next_[c] < arrivals_.size() && class_of(next_[c]) != c) ++next_[c];
  }
  size_t next_due() const { return std::min(next_[0], next_[1]); }

  // The scheduler's queue is kept short: what waits longer waits here, each class in its order. A batch's backlog holds no interactive request up.
  void admit_due() {
    if (o_.static_batches && !scheduler_.idle()) return;
    const int limit = o_.scheduler.max_sequences;
    admit_due(int(sched::RequestClass::kInteractive), is_batch_ && !o_.static_batches ? kInteractiveQueues * limit : limit);
    admit_due(int(sched::RequestClass::kBatch), limit);
  }

  void admit_due(int c, int limit) {
    for (size_t& i = next_[c]; i < arrivals_.size() && seen_us(i) <= now_ && scheduler_.num_waiting() < limit; ++i, find_next(c)) {
      const Arrival& a = arrivals_[i];
      sched::Submission s;
      s.id = i;
      s.prompt.resize(size_t(a.prompt_tokens));
      for (int32_t& t : s.prompt) t = int32_t(rng_.next_u32() >> 8);
      s.max_tokens = a.output_tokens;
      s.ignore_eos = true;
      s.arrived_us = arrival_us(i);
      s.sink = std::make_shared<GapSink>(&now_, &gaps_[c]);
      s.request_class = sched::RequestClass(c);
      scheduler_.admit(std::move(s));
    }
  }

  void step() {
    const sched::BatchPlan& plan = scheduler_.plan(now_);
    SLUICE_CHECK(!plan.empty());
    if (o_.static_batches && o_.keep_finished) executor_.set_padding(finished_slots());
    SLUICE_CHECK(executor_.submit(plan).ok());
    const TimeUs took = executor_.took_us();
    now_ += took;
    count_waste();
    SLUICE_CHECK(executor_.collect(result_).ok());
    outcome_.clear();
    scheduler_.commit(result_, now_, took, outcome_);
    ++r_.steps;
    for (sched::Delivery& d : outcome_.deliveries) d.sink->push(std::move(d.event));
    for (const sched::Finished& f : outcome_.finished) note(f);
  }

  // Members of a static batch that have ended: each still computes one token and holds its cache.
  sched::StepShape finished_slots() const {
    sched::StepShape shape;
    for (int length : batch_) shape.add(1, length, 1);
    return shape;
  }

  void count_waste() {
    int64_t slots = 0, live = 0;
    scheduler_.usage(&slots, &live);
    if (o_.reserve_tokens > 0) slots = int64_t(scheduler_.num_running()) * o_.reserve_tokens;
    slot_steps_ += double(slots);
    live_steps_ += double(live);
  }

  void note(const sched::Finished& f) {
    if (o_.static_batches) batch_.push_back(f.prompt_tokens + f.generated_tokens);
    const auto since = [&](TimeUs at) { return double(at - f.arrived_us) * 1e-6; };
    tallies_[class_of(size_t(f.request_id))].add(since(f.first_token_us), since(f.finished_us), f.prompt_tokens, f.generated_tokens);
  }

  static LoadReport report(const LoadTally& tally, const LogHistogram& gaps, double duration_s) {
    LoadReport r = tally.report(duration_s);
    r.itl_ms = {gaps.quantile_ms(0.5), gaps.quantile_ms(0.9), gaps.quantile_ms(0.99)};
    return r;
  }

  void finish(double wall_s) {
    const double duration_s = double(now_ - (arrivals_.empty() ? 0 : arrival_us(0))) * 1e-6;
    if (tallies_[0].ok() > 0 && tallies_[1].ok() > 0)
      for (const int c : {0, 1}) r_.classes.push_back(report(tallies_[c], gaps_[c], duration_s));
    tallies_[0].add(tallies_[1]);
    gaps_[0].add(gaps_[1]);
    static_cast<LoadReport&>(r_) = report(tallies_[0], gaps_[0], duration_s);
    r_.wall_s = wall_s;
    r_.kv_waste_pct = slot_steps_ > 0 ? 100 * (1 - live_steps_ / slot_steps_) : 0;
    r_.preemptions = scheduler_.counters().preemptions;
    r_.step_error_p90 = scheduler_.cost().error_p90();
  }

  static constexpr int kInteractiveQueues = 64;
  const SimulateOptions& o_;
  const std::vector<Arrival>& arrivals_;
  const std::function<bool(size_t)>& is_batch_;
  Rng rng_;
  sched::Scheduler scheduler_;
  exec::SimExecutor executor_;
  sched::StepResult result_;
  sched::StepOutcome outcome_;
  SimulateReport r_;
  TimeUs now_ = 0;
  size_t next_[2] = {0, 0};
  std::vector<int> batch_;  // lengths of a static batch's finished members
  LoadTally tallies_[2];    // by class
  LogHistogram gaps_[2];
  double slot_steps_ = 0, live_steps_ = 0;
};

}  // namespace

Result<SimulateReport> simulate(const SimulateOptions& o, const std::vector<Arrival>& arrivals, const std::function<bool(size_t)>& is_batch) {
  SimulateOptions options = o;
  for (const Arrival& a : arrivals) SLUICE_TRY(sched::Scheduler::fits(o.scheduler, a.prompt_tokens, a.output_tokens));
  if (o.reserve_tokens > 0) {
    const int64_t fit = int64_t(o.scheduler.total_blocks) * o.scheduler.block_tokens / o.reserve_tokens;
    if (fit < 1) return invalid("a request's reserve of " + std::to_string(o.reserve_tokens) + " tokens is over the cache", "--allocation");
    options.scheduler.max_sequences = int(std::min<int64_t>(fit, o.scheduler.max_sequences));
  }
  return Simulation(options, arrivals, is_batch).run();
}

}  // namespace sluice::lab
