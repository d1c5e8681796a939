// What the scheduler itself costs: the time of plan and commit, with nothing that runs between them. Sequences either all decode,
// or end and are followed by others with prompts. Steps are timed one by one, in the caller's thread.
#pragma once
#include <cstdint>

#include "base/result.h"

namespace sluice::lab {

struct SchedulerBenchOptions {
  int sequences = 256;    // running at once, 1..4096
  int steps = 2000;       // timed, 1..1000000
  int prompt_tokens = 256;
  bool arrivals = false;  // outputs of uneven lengths, a new request for each that ends; else every sequence decodes throughout
};

struct SchedulerCost {
  int steps = 0;
  double mean_us = 0, p50_us = 0, p99_us = 0, max_us = 0;  // of a step: cancellations looked for, planned, committed
  double plan_p50_us = 0, commit_p50_us = 0;
  double tokens_a_step = 0;                                // of prompts and decodes
};

// Errors: kInvalidArgument.
Result<SchedulerCost> bench_scheduler(const SchedulerBenchOptions& options);

}  // namespace sluice::lab
