// The simulator against an engine in its own thread whose steps take known times, on a clock that only steps and arrivals move:
// both must see the same, whatever else the machine does.
#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>

#include "engine/engine.h"
#include "exec/sim_executor.h"
#include "lab/simulate.h"
#include "lab/timed_sink.h"

namespace sluice::lab {
namespace {

double cost_us(const sched::StepShape& s) { return 1500 + 60.0 * s.tokens + 0.05 * double(s.cached_tokens); }

class SharedClock final : public Clock {
 public:
  TimeUs now_us() const noexcept override { return now_us_; }
  void set(TimeUs us) { now_us_ = us; }

 private:
  std::atomic<TimeUs> now_us_{0};
};

// A step ends when the clock is at its end; what arrives until then arrives while it runs.
class JumpingExecutor final : public exec::Executor {
 public:
  JumpingExecutor(const sched::SchedulerOptions& o, SharedClock* clock, std::function<void(TimeUs)> arrive_until)
      : sim_(cost_us, o.total_blocks, o.block_tokens), clock_(clock), arrive_until_(std::move(arrive_until)) {}
  Status submit(const sched::BatchPlan& plan) override {
    SLUICE_TRY(sim_.submit(plan));
    until_ = clock_->now_us() + sim_.took_us();
    return {};
  }
  Status collect(sched::StepResult& result) override {
    arrive_until_(until_);
    clock_->set(until_);
    return sim_.collect(result);
  }
  int total_blocks() const override { return sim_.total_blocks(); }
  int block_tokens() const override { return sim_.block_tokens(); }

 private:
  exec::SimExecutor sim_;
  SharedClock* clock_;
  std::function<void(TimeUs)> arrive_until_;
  TimeUs until_ = 0;
};

struct Seen { double tok_s; Percentiles ttft, e2e; };

// One engine and all its arrivals: the engine's thread brings those of a step, the caller's those that find it idle.
class Live {
 public:
  Live(const sched::SchedulerOptions& o, const std::vector<Arrival>& arrivals) : arrivals_(arrivals), times_(arrivals.size()) {
    engine::EngineOptions options;
    options.scheduler = o;
    engine_ = std::make_unique<engine::Engine>(
        options, nullptr, std::make_unique<JumpingExecutor>(o, &clock_, [this](TimeUs until) { arrive_until(until); }), &clock_);
  }

  Seen run() {
    while (next_ < arrivals_.size()) {
      arrive();
      idle_.wait();
    }
    std::vector<double> ttft, e2e;
    int64_t tokens = 0;
    TimeUs end = 0;
    for (const Times& t : times_) {
      tokens += int64_t(t.tokens.size());
      end = std::max(end, t.last);
      ttft.push_back(double(t.tokens.front() - t.submitted) * 1e-6);
      e2e.push_back(double(t.last - t.submitted) * 1e-6);
    }
    return {double(tokens) / (double(end - times_[0].submitted) * 1e-6), percentiles_ms(ttft), percentiles_ms(e2e)};
  }

 private:
  // Opens when all that arrived have ended.
  class Idle {
   public:
    void one_arrived() { std::lock_guard lock(mutex_); ++open_; }
    void one_ended() {
      std::lock_guard lock(mutex_);
      if (--open_ == 0) none_.notify_all();
    }
    void wait() {
      std::unique_lock lock(mutex_);
      none_.wait(lock, [&] { return open_ == 0; });
    }

   private:
    std::mutex mutex_;
    std::condition_variable none_;
    int open_ = 0;
  };

  class Sink final : public sched::ResponseSink {
   public:
    Sink(Times* times, Idle* idle, const Clock* clock) : times_(times), idle_(idle), clock_(clock) {}
    void push(sched::TokenEvent&& e) noexcept override {
      if (e.has_token) times_->tokens.push_back(clock_->now_us());
      if (e.finish == sched::FinishReason::kNone) return;
      times_->last = clock_->now_us();
      idle_->one_ended();
    }

   private:
    Times* times_;
    Idle* idle_;
    const Clock* clock_;
  };

  TimeUs arrival_us(size_t i) const { return TimeUs(arrivals_[i].at_s * 1e6); }

  void arrive_until(TimeUs until) {
    while (next_ < arrivals_.size() && arrival_us(next_) <= until) arrive();
  }

  // From the submission on, everything here is the engine's thread's, until it is idle.
  void arrive() {
    const size_t i = next_++;
    clock_.set(times_[i].submitted = arrival_us(i));
    sched::Submission s;
    s.prompt.assign(size_t(arrivals_[i].prompt_tokens), int32_t(i));
    s.max_tokens = arrivals_[i].output_tokens;
    s.ignore_eos = true;
    s.sink = std::make_shared<Sink>(&times_[i], &idle_, &clock_);
    idle_.one_arrived();
    EXPECT_TRUE(engine_->submit(std::move(s)).ok());
  }

  const std::vector<Arrival>& arrivals_;
  std::vector<Times> times_;
  size_t next_ = 0;
  SharedClock clock_;
  Idle idle_;
  std::unique_ptr<engine::Engine> engine_;
};

TEST(SimulatorAndEngine, SeeTheSameWhereStepsTakeTheSame) {
  WorkloadOptions w;
  w.prompt_tokens = "lognormal:4.6:0.8:8:800";
  w.output_tokens = "lognormal:3.3:0.6:4:100";
  w.requests = 60;
  w.rate = 20;
  const std::vector<Arrival> arrivals = *plan_workload(w);
  SimulateOptions o;
  o.cost = cost_us;
  o.scheduler.total_blocks = 4000;
  o.scheduler.max_context = 4096;
  o.scheduler.prompt_room = 0.45;
  o.scheduler.prefix_cache = false;
  const SimulateReport simulated = *simulate(o, arrivals);
  const Seen seen = Live(o.scheduler, arrivals).run();
  EXPECT_NEAR(simulated.output_tok_s / seen.tok_s, 1, 1e-3);
  EXPECT_NEAR(simulated.ttft_ms.p50 / seen.ttft.p50, 1, 1e-3);
  EXPECT_NEAR(simulated.e2e_ms.p50 / seen.e2e.p50, 1, 1e-3);
  EXPECT_NEAR(simulated.ttft_ms.p99 / seen.ttft.p99, 1, 1e-3);
  EXPECT_NEAR(simulated.e2e_ms.p99 / seen.e2e.p99, 1, 1e-3);
}

}  // namespace
}  // namespace sluice::lab
