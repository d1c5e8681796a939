// What tests of the scheduler run it with: a device that is a hash of what its blocks hold, requests and who hears of them, and a clock.
#pragma once
#include <gtest/gtest.h>

#include <map>

#include "sched/scheduler.h"

namespace sluice::sched {

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
inline std::vector<int32_t> expected_text(const std::vector<int32_t>& prompt, int max_tokens, int choice, bool stops = false) {
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

inline int32_t next_token(std::span<const int32_t> all, int choice) {
  uint64_t h = 17;
  for (int32_t t : all) h = h * 6364136223846793005ull + uint64_t(t) + 1;
  h += uint64_t(choice) * 977;
  return int32_t((h >> 33) % kVocab);
}

struct Sent {
  std::shared_ptr<Recorder> sink;
  std::shared_ptr<std::atomic<bool>> cancelled;
  std::vector<int32_t> prompt;
  int max_tokens, n;
  uint64_t sent_step;
  bool stops = false;
};

inline Submission make(const Sent& s) {
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
inline TimeUs time_of(const BatchPlan& plan) {
  TimeUs us = 200 + 20 * plan.num_tokens();
  for (int32_t n : plan.kv_len) us += n / 16;
  return us;
}

inline SchedulerOptions options(int blocks, int block_tokens, int sequences, int step_tokens, bool prefix) {
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

struct Rig {
  explicit Rig(SchedulerOptions o) : scheduler(o, nullptr), device(o.total_blocks, o.block_tokens) {}
  Sent send(std::vector<int32_t> prompt, int max_tokens, int n = 1, RequestClass c = RequestClass::kInteractive) {
    Sent s{std::make_shared<Recorder>(), std::make_shared<std::atomic<bool>>(false), std::move(prompt), max_tokens, n, 0, false};
    Submission sub = make(s);
    sub.request_class = c;
    sub.arrived_us = now;
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

inline std::vector<int32_t> ramp(int n, int start = 0) {
  std::vector<int32_t> v(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) v[size_t(i)] = (start + i) % kVocab;
  return v;
}

}  // namespace sluice::sched
