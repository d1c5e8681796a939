// Scheduler, third part: blocks of preempted sequences kept aside instead of computed again, where moving them there and back
// is predicted to take less time.
#include <algorithm>

#include "sched/scheduler.h"

namespace sluice::sched {

bool Scheduler::worth_swapping(const Sequence* s) const {
  const int count = (s->computed + options_.block_tokens - 1) / options_.block_tokens;
  if (count == 0 || count > int(swap_free_.size())) return false;
  // What a copy of this very step brings is not there yet.
  for (const CopyPair& c : making_->plan.copies)
    if (std::find(s->blocks.begin(), s->blocks.end(), c.to) != s->blocks.end()) return false;
  StepShape again;
  again.add(s->computed, s->computed, 0);
  return cost_.predict(again) > 2 * count * options_.swap_block_us;
}

// The copies are the first things of the step in hand; undone when there is none.
void Scheduler::swap_out(Sequence* s) {
  const int count = (s->computed + options_.block_tokens - 1) / options_.block_tokens;
  for (int i = 0; i < count; ++i) {
    s->swapped.push_back(swap_free_.back());
    swap_free_.pop_back();
    making_->plan.copies.push_back({s->blocks[size_t(i)], s->swapped.back()});
  }
  s->swapped_tokens = s->computed;
  ++counters_.swaps;
}

void Scheduler::swap_in(Sequence* s) {
  for (const kv::BlockId from : s->swapped) {
    SLUICE_CHECK(allocate(s));
    making_->plan.copies.push_back({from, s->blocks.back()});
  }
  s->computed = s->swapped_tokens;
  drop_swapped(s);  // whoever gets these places in this step writes them after they were read
}

void Scheduler::drop_swapped(Sequence* s) {
  swap_free_.insert(swap_free_.end(), s->swapped.begin(), s->swapped.end());
  s->swapped.clear();
  s->swapped_tokens = 0;
}

// No step comes of the plan in hand: what it was to copy is not copied.
void Scheduler::undo_copies() {
  for (const CopyPair& c : making_->plan.copies)
    for (Sequence* s : waiting_)
      if (std::find(s->swapped.begin(), s->swapped.end(), c.to) != s->swapped.end()) drop_swapped(s);
  making_->plan.copies.clear();
}

}  // namespace sluice::sched
