// StepPrice: microseconds of a step with drafts in it. StepCost's prediction, corrected by what steps of so many tokens were
// measured to take over it: between one token and a few, where speculation lives, kernels have steps that no line through all
// sizes shows. A correction that is not used fades, so that one bad moment does not forbid a size for ever. Pure; one thread.
#pragma once
#include <array>
#include <cstdint>

#include "sched/step_cost.h"

namespace sluice::draft {

class StepPrice {
 public:
  explicit StepPrice(const sched::StepCost* cost) : cost_(cost) {}
  double predict(const sched::StepShape& shape) const;
  // A step that took so long, before StepCost has learned of it or after.
  void observe(const sched::StepShape& shape, TimeUs took_us);

  static constexpr int kExact = 32;   // sizes up to this are measured one by one

 private:
  static constexpr int kBuckets = kExact + 8;  // beyond, by powers of two
  struct Correction {
    double factor = 1;
    uint64_t at = 0, seen = 0;
  };
  static int bucket(int tokens);
  const sched::StepCost* cost_;
  std::array<Correction, kBuckets> corrections_{};
  uint64_t steps_ = 0;
};

}  // namespace sluice::draft
