// sluice bench scheduler: what the scheduler itself costs a step; prints what lab/bench_scheduler.h reports.
#pragma once
#include "base/result.h"

namespace sluice::apps {

struct SchedulerFlags {
  int sequences = 256, steps = 5000;
  bool json = false;
};

Result<int> bench_scheduler(const SchedulerFlags& flags);

}  // namespace sluice::apps
