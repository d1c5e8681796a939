// The simulator against a live engine whose steps take known times: what a step costs apart, both must see the same.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <thread>

#include "engine/engine.h"
#include "exec/sim_executor.h"
#include "lab/simulate.h"
#include "lab/timed_sink.h"

namespace sluice::lab {
namespace {

double cost_us(const sched::StepShape& s) { return 1500 + 60.0 * s.tokens + 0.05 * double(s.cached_tokens); }

// Steps that only take their time.
class SleepingExecutor final : public exec::Executor {
 public:
  explicit SleepingExecutor(const sched::SchedulerOptions& o) : sim_(cost_us, o.total_blocks, o.block_tokens) {}
  Status submit(const sched::BatchPlan& plan) override {
    until_ = std::chrono::steady_clock::now();
    SLUICE_TRY(sim_.submit(plan));
    until_ += std::chrono::microseconds(sim_.took_us());
    return {};
  }
  Status collect(sched::StepResult& result) override {
    std::this_thread::sleep_until(until_);
    return sim_.collect(result);
  }
  int total_blocks() const override { return sim_.total_blocks(); }
  int block_tokens() const override { return sim_.block_tokens(); }

 private:
  exec::SimExecutor sim_;
  std::chrono::steady_clock::time_point until_;
};

struct Seen { double tok_s; Percentiles ttft, e2e; };

Seen live(const sched::SchedulerOptions& o, const std::vector<Arrival>& arrivals) {
  SteadyClock clock;
  engine::EngineOptions options;
  options.scheduler = o;
  engine::Engine engine(options, nullptr, std::make_unique<SleepingExecutor>(o), &clock);
  std::vector<Times> times(arrivals.size());
  Gate gate(int(arrivals.size()));
  const TimeUs begin = clock.now_us();
  for (size_t i = 0; i < arrivals.size(); ++i) {
    sched::Submission s;
    s.prompt.assign(size_t(arrivals[i].prompt_tokens), int32_t(i));
    s.max_tokens = arrivals[i].output_tokens;
    s.ignore_eos = true;
    s.sink = std::make_shared<TimedSink>(&times[i], &gate, &clock);
    const TimeUs wait = begin + TimeUs(arrivals[i].at_s * 1e6) - clock.now_us();
    if (wait > 0) std::this_thread::sleep_for(std::chrono::microseconds(wait));
    times[i].submitted = clock.now_us();
    EXPECT_TRUE(engine.submit(std::move(s)).ok());
  }
  gate.wait();
  std::vector<double> ttft, e2e;
  int64_t tokens = 0;
  TimeUs end = begin;
  for (const Times& t : times) {
    tokens += int64_t(t.tokens.size());
    end = std::max(end, t.last);
    ttft.push_back(double(t.tokens.front() - t.submitted) * 1e-6);
    e2e.push_back(double(t.last - t.submitted) * 1e-6);
  }
  return {double(tokens) / (double(end - begin) * 1e-6), percentiles_ms(ttft), percentiles_ms(e2e)};
}

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
  // A machine that is busy with other things wakes the engine late: one of three runs must agree.
  Seen seen = live(o.scheduler, arrivals);
  for (int i = 0; i < 2 && std::abs(simulated.ttft_ms.p99 / seen.ttft.p99 - 1) > 0.2; ++i) seen = live(o.scheduler, arrivals);
  EXPECT_NEAR(simulated.output_tok_s / seen.tok_s, 1, 0.2);
  EXPECT_NEAR(simulated.ttft_ms.p50 / seen.ttft.p50, 1, 0.2);
  EXPECT_NEAR(simulated.e2e_ms.p50 / seen.e2e.p50, 1, 0.2);
  EXPECT_NEAR(simulated.ttft_ms.p99 / seen.ttft.p99, 1, 0.3);
  EXPECT_NEAR(simulated.e2e_ms.p99 / seen.e2e.p99, 1, 0.3);
}

}  // namespace
}  // namespace sluice::lab
