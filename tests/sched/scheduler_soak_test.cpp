// Seeded property tests of the real scheduler with a fake device: 10,000 steps a seed, every invariant after every step.
#include <cstdlib>
#include <deque>

#include "base/rng.h"
#include "tests/sched/rig.h"

namespace sluice::sched {
namespace {

// Drafts for every sequence that can take them: so many right ones, then maybe wrong ones; none, tokens that are none, too many.
void draft_at_random(Scheduler& scheduler, Rng& rng) {
  const auto slots = scheduler.draft_slots();
  for (size_t i = 0; i < slots.size(); ++i) {
    std::vector<int32_t> all(slots[i].history.begin(), slots[i].history.end()), drafts;
    const uint32_t right = rng.below(6), wrong = rng.below(4);
    for (uint32_t j = 0; j < right; ++j) {
      drafts.push_back(next_token(all, slots[i].sampling->choice));
      all.push_back(drafts.back());
    }
    for (uint32_t j = 0; j < wrong; ++j) drafts.push_back(int32_t(rng.below(kVocab + 3)) - 1);
    if (rng.below(3)) scheduler.put_drafts(i, drafts, rng.below(2) == 0);
  }
}

// depth 2: every step is planned before the one ahead of it is committed, wherever the scheduler gives a plan.
void soak(uint64_t seed, SchedulerOptions o, int steps, size_t depth = 1, bool drafts = false) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  Rng rng(seed);
  Scheduler scheduler(o, nullptr);
  FakeDevice device(o.total_blocks + o.swap_blocks, o.block_tokens, o.group_tokens);
  std::vector<Sent> open;
  const int capacity = o.total_blocks * o.block_tokens;
  std::vector<int32_t> shared(size_t(capacity / 3));
  for (auto& t : shared) t = int32_t(rng.below(kVocab));
  uint64_t step = 0, completed = 0, ahead = 0;
  int drafted = 0, accepted = 0;
  std::deque<StepResult> in_flight;
  std::deque<TimeUs> times;
  auto check_done = [&] {
    std::erase_if(open, [&](Sent& s) {
      if (int(s.sink->finished.size()) < s.n) return false;
      for (auto& [choice, reason] : s.sink->finished) {
        if (reason == FinishReason::kCancelled) continue;
        const auto text = expected_text(s.prompt, s.max_tokens, choice, s.stops);
        EXPECT_EQ(reason, s.stops && text.back() < kStops ? FinishReason::kStop : FinishReason::kLength);
        EXPECT_EQ(s.sink->tokens[choice], text);
      }
      ++completed;
      return true;
    });
  };
  while (step < uint64_t(steps) || !scheduler.idle() || !in_flight.empty()) {
    if (step < uint64_t(steps) && rng.below(4) == 0 && open.size() < 40) {
      Sent s;
      s.sink = std::make_shared<Recorder>();
      s.cancelled = std::make_shared<std::atomic<bool>>(false);
      const uint32_t kind = rng.below(8);
      const size_t shared_length = rng.below(2) ? rng.below(uint32_t(shared.size())) : 0;
      s.prompt.assign(shared.begin(), shared.begin() + std::ptrdiff_t(shared_length));
      const uint32_t own = 1 + rng.below(kind == 0 ? uint32_t(capacity / 2) : 40);
      for (uint32_t i = 0; i < own; ++i) s.prompt.push_back(int32_t(rng.below(kVocab)));
      s.max_tokens = int(1 + rng.below(40));
      s.n = rng.below(5) == 0 ? int(2 + rng.below(4)) : 1;
      s.sent_step = step;
      s.stops = rng.below(3) == 0;
      if (Scheduler::fits(o, int64_t(s.prompt.size()), s.max_tokens).ok()) {
        Submission sub = make(s);
        sub.request_class = rng.below(3) ? RequestClass::kInteractive : RequestClass::kBatch;
        scheduler.admit(std::move(sub));
        open.push_back(std::move(s));
      }
    }
    if (!open.empty() && rng.below(60) == 0) open[rng.below(uint32_t(open.size()))].cancelled->store(true);
    StepOutcome gone;
    scheduler.reap_cancelled(TimeUs(step), gone);
    for (Delivery& d : gone.deliveries) d.sink->push(std::move(d.event));
    scheduler.validate();
    while (!scheduler.idle() && in_flight.size() < depth) {
      if (drafts) draft_at_random(scheduler, rng);
      scheduler.validate();
      const BatchPlan& plan = scheduler.plan(TimeUs(step));
      ASSERT_FALSE(plan.empty() && in_flight.empty()) << "work waits and nothing runs";
      if (plan.empty()) break;
      plan.validate(o.total_blocks, kVocab, in_flight.empty() ? 0 : int(in_flight.back().rows.size()));
      ASSERT_LE(plan.num_tokens(), o.max_step_tokens);
      ASSERT_LE(plan.num_sequences(), o.max_sequences);
      ahead += !in_flight.empty();
      in_flight.push_back(device.run(plan));
      times.push_back(time_of(plan));
      scheduler.validate();
    }
    if (!in_flight.empty()) {
      StepOutcome outcome;
      scheduler.commit(in_flight.front(), TimeUs(step), times.front(), outcome);
      in_flight.pop_front();
      times.pop_front();
      for (const Verified& v : outcome.verified) {
        ASSERT_TRUE(v.accepted >= 0 && v.accepted <= v.drafted);
        drafted += v.drafted;
        accepted += v.accepted;
      }
      for (Delivery& d : outcome.deliveries) d.sink->push(std::move(d.event));
    }
    scheduler.validate();
    int64_t slots, live;
    scheduler.usage(&slots, &live);
    ASSERT_LT(slots - live, int64_t(std::max(1, scheduler.num_running())) * o.block_tokens + 1);
    check_done();
    ++step;
    ASSERT_LT(step, uint64_t(steps) + 20000) << "starvation: " << open.size() << " requests are still open";
  }
  EXPECT_TRUE(open.empty());
  EXPECT_GT(completed, 20u);
  EXPECT_GE(ahead, depth > 1 && !drafts ? step / 4 : 0) << "plans were seldom made ahead";
  if (drafts) {
    EXPECT_GT(accepted, 1000);
    EXPECT_GT(drafted, accepted + 100);
  }
  EXPECT_EQ(scheduler.pool().num_held(), 0);
  EXPECT_GE(scheduler.counters().swaps, o.swap_blocks > 0 ? 10u : 0u);
}

// Further seeds: SLUICE_SEEDS=n.
int num_seeds() {
  const char* n = std::getenv("SLUICE_SEEDS");
  return n ? std::atoi(n) : 3;
}

TEST(SchedulerSoak, RoomyPool) {
  for (int s = 1; s <= num_seeds(); ++s) soak(uint64_t(s), options(400, 16, 32, 64, true), 10000);
}
TEST(SchedulerSoak, TightPoolPreempts) {
  for (int s = 1; s <= num_seeds(); ++s) soak(uint64_t(100 + s), options(24, 16, 16, 48, true), 10000);
}
TEST(SchedulerSoak, TightPoolWithoutPrefixCache) {
  for (int s = 1; s <= num_seeds(); ++s) soak(uint64_t(200 + s), options(24, 16, 16, 33, false), 10000);
}
TEST(SchedulerSoak, LargeBlocksTinyBudget) {
  for (int s = 1; s <= num_seeds(); ++s) soak(uint64_t(300 + s), options(12, 32, 4, 7, true), 10000);
}

TEST(SchedulerSoak, RunningAheadInARoomyPool) {
  for (int s = 1; s <= num_seeds(); ++s) soak(uint64_t(400 + s), options(400, 16, 32, 64, true), 10000, 2);
}
TEST(SchedulerSoak, RunningAheadInATightPool) {
  for (int s = 1; s <= num_seeds(); ++s) soak(uint64_t(500 + s), options(40, 16, 16, 48, true), 10000, 2);
}
TEST(SchedulerSoak, RunningAheadWithLargeBlocksAndATinyBudget) {
  for (int s = 1; s <= num_seeds(); ++s) soak(uint64_t(600 + s), options(20, 32, 4, 7, true), 10000, 2);
}

// Blocks of preempted sequences are kept where copying is sooner: two prices, few places and many.
TEST(SchedulerSoak, Swapping) {
  for (int s = 1; s <= num_seeds(); ++s)
    for (const size_t depth : {1, 2}) {
      SchedulerOptions o = options(24, 16, 16, 48, s % 2 == 0);
      o.swap_blocks = s % 3 == 0 ? 6 : 64;
      o.swap_block_us = s % 2 ? 0.1 : 60;
      soak(uint64_t(800 + s), o, 10000, depth);
    }
}

// Prompts and batch work squeezed into little time: everything still ends.
TEST(SchedulerSoak, TightTime) {
  for (int s = 1; s <= num_seeds(); ++s) {
    SchedulerOptions o = options(60, 16, 16, 64, true);
    o.step_us = 600;
    soak(uint64_t(700 + s), o, 10000);
    soak(uint64_t(800 + s), o, 10000, 2);
  }
}

// Where the cache closes groups of tokens, nobody writes into one that is closed: not drafts, samples or who comes back.
TEST(SchedulerSoak, GroupsOfTokensAreClosedOnce) {
  for (int s = 1; s <= num_seeds(); ++s)
    for (const bool drafts : {false, true}) {
      SchedulerOptions roomy = options(200, 64, 32, 64, true), tight = options(24, 16, 16, 48, true), kept = options(14, 32, 8, 33, false);
      roomy.group_tokens = tight.group_tokens = kept.group_tokens = 16;
      kept.swap_blocks = 40;
      kept.swap_block_us = 0.1;
      soak(uint64_t(2000 + s), roomy, 3000, 1, drafts);
      soak(uint64_t(2100 + s), tight, 3000, 1, drafts);
      soak(uint64_t(2200 + s), kept, 3000, 1, false);
      soak(uint64_t(2300 + s), roomy, 3000, 2, drafts);
    }
}

// Drafts right and wrong, in every pool: the same texts, stops and limits, and every invariant.
TEST(SchedulerSoak, Drafts) {
  for (int s = 1; s <= num_seeds(); ++s) {
    soak(uint64_t(900 + s), options(400, 16, 32, 64, true), 6000, 1, true);
    soak(uint64_t(1000 + s), options(24, 16, 16, 48, true), 6000, 1, true);
    soak(uint64_t(1100 + s), options(12, 32, 4, 7, true), 6000, 1, true);
    soak(uint64_t(1200 + s), options(24, 16, 16, 33, false), 6000, 1, true);
  }
}
TEST(SchedulerSoak, DraftsWhileRunningAhead) {
  for (int s = 1; s <= num_seeds(); ++s) {
    soak(uint64_t(1300 + s), options(400, 16, 32, 64, true), 6000, 2, true);
    soak(uint64_t(1400 + s), options(40, 16, 16, 48, true), 6000, 2, true);
    SchedulerOptions o = options(60, 16, 16, 64, true);
    o.step_us = 600;
    soak(uint64_t(1500 + s), o, 6000, 2, true);
  }
}

}  // namespace
}  // namespace sluice::sched
