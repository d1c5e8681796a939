// The simulator: the server's own Scheduler over a cost model and a clock that jumps. What it reports is what `bench serve`
// reports of a live server. Baselines are options: batches that end together, cache reserved at full length, no bound on time.
#pragma once
#include <functional>

#include "exec/sim_executor.h"
#include "lab/load_generator.h"
#include "sched/scheduler.h"

namespace sluice::lab {

struct SimulateOptions {
  sched::SchedulerOptions scheduler;
  exec::CostModel cost;
  bool static_batches = false;    // a batch is admitted when the one before has ended
  bool keep_finished = true;      // ... and its finished members' slots are computed until then
  int reserve_tokens = 0;         // > 0: every request holds cache for so many tokens while it runs (contiguous allocation)
  double slo_ttft_ms = 0, slo_tpot_ms = 0;
  double request_us = 0;          // see Hardware
  std::vector<double> step_cost;  // what the scheduler knows of steps at the start: StepCost::kept, or empty
  uint64_t seed = 1;
};

struct SimulateReport : LoadReport {
  double kv_waste_pct = 0;        // of allocated cache slots, without a token, over all steps
  uint64_t preemptions = 0, steps = 0;
  double step_error_p90 = 0;      // of the scheduler's own predictions
  double wall_s = 0;              // what simulating took
  std::vector<LoadReport> classes;  // interactive, batch: where there are both
};

// Batch class for request i where is_batch says so (may be null). Errors: kContextLength when a request can never fit.
Result<SimulateReport> simulate(const SimulateOptions& options, const std::vector<Arrival>& arrivals,
                                const std::function<bool(size_t)>& is_batch = nullptr);

}  // namespace sluice::lab
