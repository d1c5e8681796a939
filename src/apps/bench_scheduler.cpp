#include "apps/bench_scheduler.h"

#include <cstdio>
#include <iostream>

#include <nlohmann/json.hpp>

#include "lab/bench_scheduler.h"

namespace sluice::apps {

Result<int> bench_scheduler(const SchedulerFlags& f) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const bool arrivals : {false, true}) {
    lab::SchedulerBenchOptions o;
    o.sequences = f.sequences;
    o.steps = f.steps;
    o.arrivals = arrivals;
    SLUICE_ASSIGN(const lab::SchedulerCost c, lab::bench_scheduler(o));
    if (!arrivals && !f.json) std::printf("%-10s %9s %11s %9s %9s %9s %9s %9s\n", "", "sequences", "tokens/step", "p50 us", "p99 us", "max us", "plan us", "commit us");
    const char* name = arrivals ? "mixed" : "decode";
    rows.push_back({{"name", name}, {"batch", f.sequences}, {"steps", c.steps}, {"tokens_per_step", c.tokens_a_step}, {"mean_us", c.mean_us}, {"p50_us", c.p50_us},
                    {"p99_us", c.p99_us}, {"max_us", c.max_us}, {"plan_p50_us", c.plan_p50_us}, {"commit_p50_us", c.commit_p50_us}});
    if (!f.json)
      std::printf("%-10s %9d %11.1f %9.1f %9.1f %9.1f %9.1f %9.1f\n", name, f.sequences, c.tokens_a_step, c.p50_us, c.p99_us, c.max_us, c.plan_p50_us, c.commit_p50_us);
  }
  if (f.json) std::cout << nlohmann::ordered_json{{"rows", rows}}.dump() << "\n";
  return 0;
}

}  // namespace sluice::apps
