// What output rows draw from, for rows that verify a draft by rejection (sample/rejection.h) or keep their distribution for one who will.
// A host's logits only. Kept scratch grows to the rows of one step. One thread.
#pragma once
#include <span>
#include <vector>

#include "kernels/abi.h"
#include "sched/batch_plan.h"

namespace sluice::exec {

class RowDistributions {
 public:
  static bool wanted(const sched::BatchPlan& plan);
  // Before the sampler, which writes over logits. rows: those of args.
  void read(std::span<const sched::OutputRow> rows, const kernels::SampleArgs& args);
  // After it: rows that verify get the draft, or what stands in its place.
  void decide(std::span<const sched::OutputRow> rows, const kernels::SampleArgs& args) const;

 private:
  std::vector<std::vector<float>> kept_;
  std::vector<sample::LogitChange> changes_;
};

}  // namespace sluice::exec
