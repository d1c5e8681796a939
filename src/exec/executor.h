// Executor: runs plans. submit() starts a step, collect() waits for it; one step in flight. Engine thread only.
#pragma once
#include <cstdint>

#include "base/result.h"
#include "sched/batch_plan.h"

namespace sluice::exec {

class Executor {
 public:
  virtual ~Executor() = default;
  // The plan (and what it points to) must stay as it is until collect(). Errors are device faults.
  virtual Status submit(const sched::BatchPlan& plan) = 0;
  virtual Result<sched::StepResult> collect() = 0;
  virtual int total_blocks() const = 0;
  virtual int block_tokens() const = 0;
};

}  // namespace sluice::exec
