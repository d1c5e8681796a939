// Which steps can be recorded, and as what: those whose sequences all have as many tokens, each of which draws one. Pure.
#pragma once
#include "sched/batch_plan.h"

namespace sluice::exec {

// Padded sequences, and tokens of each; {0, 0}: the step is run as it is.
struct RecordedSize {
  int sequences = 0, each = 0;
  auto operator<=>(const RecordedSize&) const = default;
};

// 1, 2, 4, 8, then multiples of a quarter of the power of two below, of 8 at least.
int padded_sequences(int n);
// most: tokens of a padded step; most_each: of a sequence that has more than one.
RecordedSize recorded_size(const sched::BatchPlan& plan, int most, int most_each);

}  // namespace sluice::exec
