// SimExecutor: runs plans on a cost model instead of a device. Tokens mean nothing (each is 1); what a step takes is the model's.
// Threads: its owner's.
#pragma once
#include <functional>

#include "exec/executor.h"
#include "sched/step_cost.h"

namespace sluice::exec {

// Microseconds of a step of this shape.
using CostModel = std::function<double(const sched::StepShape&)>;

sched::StepShape shape_of(const sched::BatchPlan& plan);

class SimExecutor final : public Executor {
 public:
  SimExecutor(CostModel cost, int total_blocks, int block_tokens) : cost_(std::move(cost)), total_blocks_(total_blocks), block_tokens_(block_tokens) {}
  Status submit(const sched::BatchPlan& plan) override;
  Status collect(sched::StepResult& result) override;
  int total_blocks() const override { return total_blocks_; }
  int block_tokens() const override { return block_tokens_; }
  // Of the step that was submitted last.
  TimeUs took_us() const { return took_us_; }
  // Slots that the next steps compute without a sequence in them: what a batch pads its finished members with.
  void set_padding(const sched::StepShape& padding) { padding_ = padding; }

 private:
  CostModel cost_;
  int total_blocks_, block_tokens_;
  sched::StepShape padding_;
  TimeUs took_us_ = 0;
  size_t rows_ = 0;
};

}  // namespace sluice::exec
