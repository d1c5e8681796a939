// Seeded property tests of the real scheduler with a fake device: 10,000 steps a seed, every invariant after every step.
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <map>

#include "base/rng.h"
#include "sched/scheduler.h"

namespace sluice::sched {
namespace {

constexpr int kVocab = 1000;

struct Recorder final : ResponseSink {
  std::map<int, std::vector<int32_t>> tokens;   // by choice
  std::map<int, FinishReason> finished;
  void push(TokenEvent&& e) noexcept override {
    if (e.has_token && !e.is_prompt) tokens[e.choice].push_back(e.sample.token);
    if (e.finish != FinishReason::kNone) finished[e.choice] = e.finish;
  }
};

// A "model": the next token is a hash of everything before it, read through the cache's blocks as a device would, so a
// block that was not written, or was overwritten by another sequence, changes the text.
// Where tokens come in groups, one that is written into a group whose last token was written already spoils it.
class FakeDevice {
 public:
  FakeDevice(int blocks, int block_tokens, int group_tokens = 1)
      : block_tokens_(block_tokens), group_tokens_(group_tokens), cells_(size_t(blocks) * size_t(block_tokens), -1), closed_(cells_.size()) {}
  StepResult run(const BatchPlan& plan) {
    for (const CopyPair& c : plan.copies)
      for (int i = 0; i < block_tokens_; ++i) {
        cell(c.to, i) = cell(c.from, i);
        closed_[index(c.to, i)] = closed_[index(c.from, i)];
      }
    for (int t = 0; t < plan.num_tokens(); ++t) {
      const int32_t id = plan.token_ids[t];
      const size_t i = at(plan, plan.sequence_of[t], plan.positions[t]);
      cells_[i] = id >= 0 ? id : drawn_.at(size_t(-1 - id));
      if (group_tokens_ == 1) continue;
      const int slot = plan.positions[t] % group_tokens_;
      uint8_t& closed = closed_[i - size_t(slot)];
      if (slot == 0) closed = false;
      if (closed) cells_[i] = -7;
      if (slot == group_tokens_ - 1) closed = true;
    }
    drawn_.clear();
    StepResult r;
    for (const OutputRow& row : plan.rows) {
      uint64_t h = 17;
      for (int p = 0; p <= plan.positions[row.token_row]; ++p) h = h * 6364136223846793005ull + uint64_t(cells_[at(plan, row.sequence, p)]) + 1;
      if (row.params) h += uint64_t(row.params->choice) * 977;
      sample::SampledToken token;
      token.token = row.samples ? int32_t((h >> 33) % kVocab) : row.target;
      r.rows.push_back(token);
      drawn_.push_back(token.token);
    }
    return r;
  }

 private:
  size_t index(int32_t block, int i) const { return size_t(block) * size_t(block_tokens_) + size_t(i); }
  int32_t& cell(int32_t block, int i) { return cells_[index(block, i)]; }
  size_t at(const BatchPlan& plan, int s, int position) const {
    return index(plan.block_ids[size_t(plan.block_begin[s] + position / block_tokens_)], position % block_tokens_);
  }
  int block_tokens_, group_tokens_;
  std::vector<int32_t> cells_, drawn_;  // drawn_: by the rows of the step before
  std::vector<uint8_t> closed_;         // at a group's first token
};

constexpr int kStops = 30;  // of requests that stop early: tokens below end them
std::vector<int32_t> expected_text(const std::vector<int32_t>& prompt, int max_tokens, int choice, bool stops = false) {
  std::vector<int32_t> all = prompt, out;
  for (int i = 0; i < max_tokens; ++i) {
    uint64_t h = 17;
    for (int32_t t : all) h = h * 6364136223846793005ull + uint64_t(t) + 1;
    h += uint64_t(choice) * 977;
    out.push_back(int32_t((h >> 33) % kVocab));
    all.push_back(out.back());
    if (stops && out.back() < kStops) break;
  }
  return out;
}

int32_t next_token(std::span<const int32_t> all, int choice) {
  uint64_t h = 17;
  for (int32_t t : all) h = h * 6364136223846793005ull + uint64_t(t) + 1;
  h += uint64_t(choice) * 977;
  return int32_t((h >> 33) % kVocab);
}

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

struct Sent {
  std::shared_ptr<Recorder> sink;
  std::shared_ptr<std::atomic<bool>> cancelled;
  std::vector<int32_t> prompt;
  int max_tokens, n;
  uint64_t sent_step;
  bool stops = false;
};

Submission make(const Sent& s) {
  Submission sub;
  sub.prompt = s.prompt;
  sub.max_tokens = s.max_tokens;
  sub.n = s.n;
  sub.ignore_eos = true;
  sub.sink = s.sink;
  sub.cancelled = s.cancelled;
  if (s.stops)
    for (int t = 0; t < kStops; ++t) sub.stop_token_ids.push_back(t);
  return sub;
}

// What the fake device takes over a step.
TimeUs time_of(const BatchPlan& plan) {
  TimeUs us = 200 + 20 * plan.num_tokens();
  for (int32_t n : plan.kv_len) us += n / 16;
  return us;
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

SchedulerOptions options(int blocks, int block_tokens, int sequences, int step_tokens, bool prefix) {
  SchedulerOptions o;
  o.total_blocks = blocks;
  o.block_tokens = block_tokens;
  o.max_sequences = sequences;
  o.max_step_tokens = step_tokens;
  o.max_context = 1 << 20;
  o.vocab = kVocab;
  o.prefix_cache = prefix;
  return o;
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

// Prompts and batch work squeezed into little time: everything still ends.
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

struct Rig {
  explicit Rig(SchedulerOptions o) : scheduler(o, nullptr), device(o.total_blocks, o.block_tokens) {}
  Sent send(std::vector<int32_t> prompt, int max_tokens, int n = 1, RequestClass c = RequestClass::kInteractive) {
    Sent s{std::make_shared<Recorder>(), std::make_shared<std::atomic<bool>>(false), std::move(prompt), max_tokens, n, 0, false};
    Submission sub = make(s);
    sub.request_class = c;
    scheduler.admit(std::move(sub));
    return s;
  }
  const BatchPlan& step() {
    const BatchPlan& plan = scheduler.plan(now);
    const StepResult r = device.run(plan);
    last = plan;
    took = time_of(last);
    StepOutcome outcome;
    scheduler.commit(r, now++, took, outcome);
    for (Delivery& d : outcome.deliveries) d.sink->push(std::move(d.event));
    scheduler.validate();
    return last;
  }
  void finish() {
    for (int i = 0; i < 100000 && !scheduler.idle(); ++i) step();
    ASSERT_TRUE(scheduler.idle());
  }
  Scheduler scheduler;
  FakeDevice device;
  BatchPlan last;
  TimeUs now = 0, took = 0;
};

std::vector<int32_t> ramp(int n, int start = 0) {
  std::vector<int32_t> v(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) v[size_t(i)] = (start + i) % kVocab;
  return v;
}

// Steps teach what they cost; from then on a long prompt takes no more of one than the bound leaves.
TEST(Scheduler, AStepsTimeBoundsAPromptsChunk) {
  SchedulerOptions o = options(2000, 16, 32, 512, false);
  o.step_us = 2000;
  Rig rig(o);
  for (int i = 0; i < 6; ++i) rig.send(ramp(40 + 30 * i, 500), 200);
  for (int i = 0; i < 60; ++i) rig.step();
  rig.send(ramp(8000), 2);
  for (int i = 0; i < 60; ++i) {
    rig.step();
    EXPECT_LT(rig.took, 2300) << "step " << i;
    EXPECT_GT(rig.last.num_tokens(), 6 + 8) << "the prompt moves on";
  }
  rig.finish();
}

// With room relative to the decodes, chats' gaps stay even however long the prompt is, and the prompt still moves.
TEST(Scheduler, RoomForPromptsFollowsTheDecodes) {
  SchedulerOptions o = options(2000, 16, 32, 512, false);
  o.prompt_room = 0.4;
  Rig rig(o);
  for (int i = 0; i < 8; ++i) rig.send(ramp(40 + 30 * i, 500), 300);
  for (int i = 0; i < 60; ++i) rig.step();
  const TimeUs decodes = rig.took;
  rig.send(ramp(8000), 2);
  for (int i = 0; i < 100; ++i) {
    rig.step();
    EXPECT_LT(rig.took, 1.7 * decodes) << "step " << i;  // which grow too
    EXPECT_GT(rig.last.num_tokens(), 8) << "the prompt moves on";
  }
  rig.finish();
}

// Prompts that come faster than the room beside decodes takes them open it, as far as they need.
TEST(Scheduler, LatePromptsGetMoreRoom) {
  SchedulerOptions o = options(4000, 16, 64, 512, false);
  o.prompt_room = 0.5;
  Rig rig(o);
  const auto send = [&](int prompt, int output) {
    Sent s{std::make_shared<Recorder>(), std::make_shared<std::atomic<bool>>(false), ramp(prompt, prompt), output, 1, 0, false};
    Submission sub = make(s);
    sub.arrived_us = rig.now;
    rig.scheduler.admit(std::move(sub));
    return s;
  };
  for (int i = 0; i < 8; ++i) send(40 + 30 * i, 4000);
  for (int i = 0; i < 60; ++i) rig.step(), rig.now += rig.took;
  const TimeUs decodes = rig.took, between = 16'000;  // 400 tokens in 16 ms: alone they take half of that, with the room alone 24
  std::vector<std::pair<TimeUs, Sent>> sent;
  std::vector<TimeUs> waited;
  for (TimeUs next = rig.now; sent.size() < 100;) {
    for (; next <= rig.now; next += between) sent.emplace_back(rig.now, send(400, 1));
    rig.step();
    rig.now += rig.took;
    EXPECT_LT(rig.took, 6 * decodes);  // which grow too
    for (auto& [at, s] : sent)
      if (at >= 0 && !s.sink->finished.empty()) waited.push_back(rig.now - std::exchange(at, -1));
  }
  ASSERT_GT(waited.size(), 80u);
  EXPECT_LT(*std::max_element(waited.begin(), waited.end()), 200'000);
  rig.finish();
}

// More requests than places, always: what runs keeps its gaps, however long the others have waited.
TEST(Scheduler, LatePromptsOfAFullServerGetNoMoreRoom) {
  SchedulerOptions o = options(4000, 16, 16, 512, false);
  o.prompt_room = 0.5;
  Rig rig(o);
  int sent = 0, wide = 0, steps = 0;
  const auto fill = [&] {
    while (rig.scheduler.num_running() + rig.scheduler.num_waiting() < 32) {
      Sent s{std::make_shared<Recorder>(), std::make_shared<std::atomic<bool>>(false), ramp(400, 7 * sent++), 64, 1, 0, false};
      Submission sub = make(s);
      sub.arrived_us = rig.now;
      rig.scheduler.admit(std::move(sub));
    }
  };
  for (int i = 0; i < 4000; ++i) {
    fill();
    rig.step();
    rig.now += rig.took;
    TimeUs decodes = 200;
    for (int s = 0; s < rig.last.num_sequences(); ++s)
      if (rig.last.query_begin[s + 1] - rig.last.query_begin[s] == 1) decodes += 20 + rig.last.kv_len[s] / 16;
    if (i >= 1000 && decodes > 260) ++steps, wide += rig.took > 3 * decodes;  // predictions are not exact
  }
  EXPECT_GT(steps, 1000);
  EXPECT_LT(wide, steps / 50);
  rig.finish();
}

// One long prompt among chats that outlast it: what room it has by itself would make it take five times as long as without them.
TEST(Scheduler, ALongPromptAmongChatsGetsMoreRoomInTime) {
  SchedulerOptions o = options(4000, 16, 64, 512, false);
  o.prompt_room = 0.5;
  TimeUs took[2], decodes = 0;
  std::vector<TimeUs> gaps;
  for (const int chats : {0, 8}) {
    Rig rig(o);
    for (int i = 0; i < 40; ++i) {  // learn
      if (i % 8 == 0) rig.send(ramp(100 << i / 8, i), 12);
      if (!rig.scheduler.idle()) rig.step(), rig.now += rig.took;
    }
    rig.finish();
    for (int i = 0; i < chats; ++i) rig.send(ramp(40 + 30 * i, 500 + i), 1000);
    for (int i = 0; chats > 0 && i < 60; ++i) rig.step(), rig.now += rig.took;
    const TimeUs sent = rig.now;
    Sent s{std::make_shared<Recorder>(), std::make_shared<std::atomic<bool>>(false), ramp(6000, 9), 1, 1, 0, false};
    Submission sub = make(s);
    sub.arrived_us = sent;
    rig.scheduler.admit(std::move(sub));
    for (gaps.clear(); s.sink->finished.empty(); gaps.push_back(rig.took)) {
      rig.step();
      rig.now += rig.took;
    }
    took[chats > 0] = rig.now - sent;
    if (chats > 0) decodes = (rig.step(), rig.took);
    rig.finish();
  }
  EXPECT_LT(double(took[1]), 4.5 * double(took[0]));  // small chunks are thought dearer than they are
  EXPECT_GT(double(took[1]), 2.0 * double(took[0])) << "chats come first";
  std::sort(gaps.begin(), gaps.end());
  EXPECT_LT(gaps[gaps.size() / 2], 2 * decodes);
  EXPECT_LT(gaps.back(), 3 * decodes);
}

// Batch work beside interactive work lengthens a step by little, but each of its sequences gets its turns.
TEST(Scheduler, BatchWorkFillsWhatInteractiveLeaves) {
  SchedulerOptions o = options(4000, 16, 64, 256, false);
  Rig rig(o);
  for (int i = 0; i < 200; ++i) {  // learn
    if (i % 10 == 0) rig.send(ramp(20 + i, 500), 12);
    if (!rig.scheduler.idle()) rig.step();
  }
  rig.finish();
  std::vector<Sent> batch;
  for (int i = 0; i < 24; ++i) batch.push_back(rig.send(ramp(30, i), 2000, 1, RequestClass::kBatch));
  for (int i = 0; i < 12; ++i) rig.step();
  const TimeUs alone = rig.took;
  EXPECT_EQ(rig.last.num_tokens(), 24);
  std::vector<Sent> chats;
  for (int i = 0; i < 8; ++i) chats.push_back(rig.send(ramp(10, 500 + 10 * i), 300));
  for (int i = 0; i < 10; ++i) rig.step();
  std::vector<size_t> before;
  for (const Sent& b : batch) before.push_back(b.sink->tokens[0].size());
  for (int i = 0; i < 200; ++i) {
    rig.step();
    EXPECT_LT(rig.took, alone);
    EXPECT_LT(rig.took, 1.35 * (200 + 20 * 8 + 8 * 20)) << "step " << i;
    EXPECT_GE(rig.last.num_tokens(), 9) << "all chats and at least one of the batch";
  }
  size_t least = 1000, most = 0;
  for (size_t i = 0; i < batch.size(); ++i) {
    const size_t n = batch[i].sink->tokens[0].size() - before[i];
    least = std::min(least, n);
    most = std::max(most, n);
  }
  EXPECT_GE(least, 5u);
  EXPECT_LE(most - least, 2u) << "turns are shared";
  rig.finish();
}

// Two keys, one of which asks for ten times as much: what they are served stays even while both wait.
TEST(Scheduler, KeysShareEvenly) {
  Rig rig(options(400, 16, 8, 64, false));
  std::vector<Sent> sent[2];
  const auto send = [&](int key, int n) {
    for (int i = 0; i < n; ++i) {
      Sent s{std::make_shared<Recorder>(), std::make_shared<std::atomic<bool>>(false), ramp(20, key * 100 + i), 30, 1, 0, false};
      Submission sub = make(s);
      sub.share_key = uint64_t(key) + 1;
      rig.scheduler.admit(std::move(sub));
      sent[key].push_back(s);
    }
  };
  send(0, 200);  // and long before the other
  for (int i = 0; i < 50; ++i) rig.step();
  const auto served = [&](int key) {
    size_t n = 0;
    for (const Sent& s : sent[key]) n += s.sink->tokens[0].size();
    return double(n);
  };
  const double before = served(0);
  send(1, 60);
  while (sent[1].back().sink->finished.empty()) rig.step();
  EXPECT_NEAR(served(1) / (served(0) - before), 1.0, 0.15);
  rig.finish();
}

TEST(Shares, APauseEarnsNothingAndStrangersDoNotFillMemory) {
  Shares shares;
  shares.open(1);
  shares.charge(1, 1000, 500);
  shares.open(2);
  EXPECT_EQ(shares.served(2), 2000);
  shares.charge(2, 10, 0);
  EXPECT_EQ(shares.served(2), 2010);
  shares.close(2);
  shares.charge(1, 5000, 0);
  shares.open(2);
  EXPECT_EQ(shares.served(2), 7000);
  for (uint64_t k = 10; k < 200000; ++k) {
    shares.open(k);
    shares.close(k);
  }
  EXPECT_EQ(shares.num_active(), 2);
}

TEST(Scheduler, ALongPromptIsChunkedBesideDecodes) {
  Rig rig(options(200, 16, 8, 40, true));
  auto chat = rig.send(ramp(10, 500), 50);
  rig.step();
  auto big = rig.send(ramp(1000), 2);
  for (int i = 0; i < 20; ++i) {
    const BatchPlan& p = rig.step();
    EXPECT_LE(p.num_tokens(), 40);
    EXPECT_EQ(p.query_begin[1], 1) << "the chat's token goes first in every step";
  }
  rig.finish();
  EXPECT_EQ(chat.sink->tokens[0], expected_text(chat.prompt, 50, 0));
  EXPECT_EQ(big.sink->tokens[0], expected_text(big.prompt, 2, 0));
}

TEST(Scheduler, PrefixHitsSkipComputedBlocks) {
  Rig rig(options(200, 16, 8, 512, true));
  auto first = rig.send(ramp(100), 4);
  rig.finish();
  auto second = rig.send(ramp(100), 4);
  const BatchPlan& p = rig.step();
  EXPECT_EQ(p.num_tokens(), 100 - 96);
  rig.finish();
  EXPECT_EQ(first.sink->tokens[0], second.sink->tokens[0]);
  EXPECT_EQ(rig.scheduler.counters().prefix_hit_tokens, 96u);
}

TEST(Scheduler, SamplesShareTheirPromptAndCopyOnWrite) {
  Rig rig(options(200, 16, 16, 512, false));
  auto s = rig.send(ramp(90), 20, 4);
  rig.step();
  const BatchPlan& p = rig.step();
  EXPECT_EQ(p.copies.size(), 3u);       // 89 shared tokens: the sixth block is copied for each of three
  EXPECT_EQ(p.num_tokens(), 1 + 3);
  EXPECT_EQ(rig.scheduler.pool().num_held(), 5 + 4);
  rig.finish();
  for (int c = 0; c < 4; ++c) EXPECT_EQ(s.sink->tokens[c], expected_text(s.prompt, 20, c)) << c;
}

TEST(Scheduler, InteractiveDisplacesBatch) {
  Rig rig(options(20, 16, 8, 512, false));
  auto batch = rig.send(ramp(200), 50, 1, RequestClass::kBatch);
  rig.step();
  auto chat = rig.send(ramp(200, 300), 10);
  rig.step();
  EXPECT_EQ(rig.scheduler.counters().preemptions, 1u);
  EXPECT_EQ(chat.sink->tokens[0].size(), 1u) << "the chat's first token comes in its first step";
  rig.finish();
  EXPECT_EQ(batch.sink->tokens[0], expected_text(batch.prompt, 50, 0));
  EXPECT_EQ(chat.sink->tokens[0], expected_text(chat.prompt, 10, 0));
}

TEST(Scheduler, WhatCanNeverFitIsRefusedWithBothNumbers) {
  SchedulerOptions o = options(4, 16, 4, 64, true);
  o.max_context = 100;
  const Status over_context = Scheduler::fits(o, 90, 20);
  ASSERT_FALSE(over_context.ok());
  EXPECT_NE(over_context.error().message.find("110"), std::string::npos);
  EXPECT_NE(over_context.error().message.find("100"), std::string::npos);
  const Status over_cache = Scheduler::fits(o, 60, 10);
  ASSERT_FALSE(over_cache.ok());
  EXPECT_NE(over_cache.error().message.find("64"), std::string::npos);
  EXPECT_TRUE(Scheduler::fits(o, 60, 4).ok());
}

TEST(Scheduler, CancellationFreesBlocksWithinOneStep) {
  Rig rig(options(100, 16, 8, 512, false));
  auto s = rig.send(ramp(300), 100);
  rig.step();
  EXPECT_GT(rig.scheduler.pool().num_held(), 0);
  s.cancelled->store(true);
  StepOutcome outcome;
  EXPECT_EQ(rig.scheduler.reap_cancelled(1, outcome), 1);
  EXPECT_EQ(rig.scheduler.pool().num_held(), 0);
  EXPECT_TRUE(rig.scheduler.idle());
}

TEST(Scheduler, TheSameInputsGiveTheSamePlans) {
  auto hashes = [] {
    Rig rig(options(24, 16, 8, 48, true));
    std::vector<uint64_t> h;
    for (int i = 0; i < 30; ++i) rig.send(ramp(20 + i * 3, i), 10 + i);
    while (!rig.scheduler.idle()) h.push_back(rig.step().hash());
    return h;
  };
  EXPECT_EQ(hashes(), hashes());
}

}  // namespace
}  // namespace sluice::sched
