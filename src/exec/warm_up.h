// WarmUp: plans of steps that belong to nobody, for DeviceExecutor::warm_up. All their tokens are 0, and all of their cache is one block, written
// over and over. Pure.
#pragma once
#include <vector>

#include "sched/batch_plan.h"

namespace sluice::exec {

class WarmUp {
 public:
  // block: none of a sequence's.
  WarmUp(kv::BlockId block, int block_tokens) : block_(block), block_tokens_(block_tokens) {}

  // Of each sequence a token.
  sched::BatchPlan decodes(int sequences) const;
  // The same, and of one more sequence the first `tokens` tokens.
  sched::BatchPlan prompt(int sequences, int tokens) const;
  // One token, drawn with all of the sampler's chain.
  sched::BatchPlan sampled() const;

  // Numbers of tokens, as close as kernels tell steps apart by them, `most` the last.
  static std::vector<int> sizes(int most);

 private:
  void add(sched::BatchPlan& plan, int tokens, const sample::SamplingParams& params) const;
  kv::BlockId block_;
  int block_tokens_;
};

}  // namespace sluice::exec
