// The parts of speculation apart from any engine: lookups, the draft model's cache, acceptance, prices and control.
#include <gtest/gtest.h>

#include "base/rng.h"
#include "draft/control.h"
#include "draft/draft_cache.h"
#include "draft/acceptance.h"
#include "draft/ngram.h"
#include "draft/suffix.h"

namespace sluice::draft {
namespace {

DraftSlot slot_of(uint64_t sequence, const std::vector<int32_t>& known, uint64_t share_key = 0, uint64_t salt = 0) {
  DraftSlot s;
  s.sequence = sequence;
  s.history = known;
  s.share_key = share_key;
  s.cache_salt = salt;
  s.limit = 8;
  s.ready = true;
  return s;
}

std::vector<int32_t> ask(Proposer& p, const DraftSlot& slot, int wanted, int* grade = nullptr) {
  Proposal out;
  EXPECT_TRUE(p.propose({&slot, 1}, {&wanted, 1}, {&out, 1}).ok());
  if (grade) *grade = out.grade;
  return out.tokens;
}

TEST(Ngram, CopiesWhatFollowedTheLongestRun) {
  Ngram ngram;
  std::vector<int32_t> text{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 50, 3, 4, 60, 61, 62, 1, 2, 3, 4};
  int grade = -1;
  EXPECT_EQ(ask(ngram, slot_of(1, text), 3, &grade), (std::vector<int32_t>{5, 6, 7})) << "a run of four, not the later one of two";
  EXPECT_EQ(grade, 1);
  text.insert(text.end(), {5, 6, 7, 8});
  EXPECT_EQ(ask(ngram, slot_of(1, text), 8, &grade), (std::vector<int32_t>{9, 10, 50, 3, 4, 60, 61, 62}));
  EXPECT_EQ(grade, 2);
  text.push_back(99);
  EXPECT_TRUE(ask(ngram, slot_of(1, text), 8).empty());
  EXPECT_TRUE(ask(ngram, slot_of(2, text), -1).empty());
}

TEST(Ngram, GoesOnWithALoop) {
  Ngram ngram;
  const std::vector<int32_t> text{9, 7, 1, 2, 3, 1, 2, 3, 1, 2};
  EXPECT_EQ(ask(ngram, slot_of(1, text), 8), (std::vector<int32_t>{3, 1, 2, 3, 1, 2, 3, 1}));
}

// Step by step or all at once; what it proposes always stood in the text.
TEST(Ngram, AnyTextInAnySteps) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Rng rng(seed);
    Ngram once, steps;
    std::vector<int32_t> text;
    for (int i = 0; i < 400; ++i) {
      text.push_back(int32_t(rng.below(seed % 4 + 2)));
      const auto got = ask(steps, slot_of(1, text), int(rng.below(9)));
      for (const int32_t t : got) EXPECT_NE(std::find(text.begin(), text.end(), t), text.end());
    }
    EXPECT_EQ(ask(once, slot_of(1, text), 8), ask(steps, slot_of(1, text), 8)) << "seed " << seed;
  }
}

TEST(Suffix, RemembersFinishedRequestsOfTheSameClientAlone) {
  Suffix suffix;
  std::vector<int32_t> reply(40);
  for (int i = 0; i < 40; ++i) reply[size_t(i)] = 100 + i;
  ask(suffix, slot_of(1, reply, 5, 0), 0);
  const std::vector<int32_t> start(reply.begin(), reply.begin() + 10);
  EXPECT_TRUE(ask(suffix, slot_of(2, start, 5, 0), 8).empty()) << "it still runs";
  suffix.forget(1);
  EXPECT_EQ(ask(suffix, slot_of(2, start, 5, 0), 4), (std::vector<int32_t>{110, 111, 112, 113}));
  EXPECT_TRUE(ask(suffix, slot_of(3, start, 6, 0), 8).empty()) << "another client";
  EXPECT_TRUE(ask(suffix, slot_of(4, start, 5, 1), 8).empty()) << "another salt";
  const std::vector<int32_t> end(reply.end() - 8, reply.end());
  EXPECT_TRUE(ask(suffix, slot_of(5, end, 5, 0), 8).empty()) << "nothing goes on over the end of a request";
}

TEST(Suffix, MemoryIsBounded) {
  Suffix suffix;
  Rng rng(3);
  for (uint64_t i = 1; i < 400; ++i) {
    std::vector<int32_t> text(size_t(1 + rng.below(2000)));
    for (int32_t& t : text) t = int32_t(rng.below(1000));
    ask(suffix, slot_of(i, text, i % 100), 4);
    suffix.forget(i);
    EXPECT_LE(suffix.num_clients(), Suffix::kClients);
  }
  std::vector<int32_t> huge(3 * Suffix::kClientTokens);
  for (int round = 0; round < 4; ++round) {
    for (int32_t& t : huge) t = int32_t(rng.below(100000));
    ask(suffix, slot_of(1000, huge, 7), 0);
    suffix.forget(1000);
  }
  const std::vector<int32_t> late(huge.end() - 20, huge.end() - 10);
  EXPECT_EQ(ask(suffix, slot_of(1001, late, 7), 2), (std::vector<int32_t>{*(huge.end() - 10), *(huge.end() - 9)}));
}

// Random texts that grow, are drafted for, lose drafts and end, in few blocks: what the cache says is computed is the text's own.
TEST(DraftCache, FollowsTextsWhateverWasRejected) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    DraftCache cache(20, 16);
    std::vector<std::vector<int32_t>> texts(6);
    std::vector<int32_t> shared(100);
    for (int32_t& t : shared) t = int32_t(rng.below(50));
    for (uint64_t step = 1; step < 3000; ++step) {
      const size_t i = rng.below(uint32_t(texts.size()));
      auto& known = texts[i];
      if (known.empty()) known.assign(shared.begin(), shared.begin() + 1 + rng.below(90));
      CachedText& text = cache.follow(i, known, 0);
      ASSERT_LT(text.computed(), int(known.size()));
      ASSERT_TRUE(std::equal(text.tokens.begin(), text.tokens.end(), known.begin()));
      const int drafts = int(rng.below(6));
      if (cache.reserve(text, int(known.size()) + drafts, step)) {
        std::vector<int32_t> fed(known.begin() + text.computed(), known.end());
        for (int d = 0; d < drafts; ++d) fed.push_back(int32_t(rng.below(50)));
        cache.computed(text, fed, int(known.size()), 0);
        const int right = int(rng.below(uint32_t(drafts) + 1));
        known.insert(known.end(), fed.end() - drafts, fed.end() - drafts + right);
        known.push_back(int32_t(rng.below(50)));
      }
      if (known.size() > 200 || rng.below(40) == 0) {
        cache.forget(i);
        known.clear();
      }
      cache.validate();
    }
    for (size_t i = 0; i < texts.size(); ++i) cache.forget(i);
    EXPECT_EQ(cache.pool().num_held(), 0);
  }
}

TEST(DraftCache, APromptSeenBeforeIsNotComputedAgain) {
  DraftCache cache(50, 16);
  std::vector<int32_t> prompt(100);
  for (int i = 0; i < 100; ++i) prompt[size_t(i)] = i;
  CachedText& first = cache.follow(1, prompt, 9);
  ASSERT_TRUE(cache.reserve(first, 100, 1));
  cache.computed(first, prompt, 100, 9);
  cache.forget(1);
  EXPECT_EQ(cache.follow(2, prompt, 9).computed(), 96);
  EXPECT_EQ(cache.follow(3, prompt, 8).computed(), 0) << "another salt";
}

TEST(Acceptance, LearnsByPlaceAndForgets) {
  Acceptance a;
  const auto cls = sched::RequestClass::kInteractive;
  for (int i = 0; i < 200; ++i)
    for (int place = 0; place < 3; ++place) a.observe(Source::kModel, 0, cls, place, i % 10 < 9 - 4 * place);
  EXPECT_NEAR(a.probability(Source::kModel, 0, cls, 0), 0.9, 0.1);
  EXPECT_NEAR(a.probability(Source::kModel, 0, cls, 1), 0.5, 0.15);
  EXPECT_NEAR(a.probability(Source::kModel, 0, cls, 7), a.probability(Source::kModel, 0, cls, 2), 1e-9) << "as the last place that was measured";
  EXPECT_GT(a.probability(Source::kModel, 0, sched::RequestClass::kBatch, 0), 0.6) << "the other class knows nothing of it";
  for (int i = 0; i < 200; ++i) a.observe(Source::kModel, 0, cls, 0, false);
  EXPECT_LT(a.probability(Source::kModel, 0, cls, 0), 0.06);
  OwnAcceptance own;
  for (int i = 0; i < 20; ++i) own.observe(Source::kModel, true);
  EXPECT_GT(own.temper(Source::kModel, 0.05), 0.6) << "what one sequence shows of its own";
}

// A machine whose steps cost a fixed time, a little a token up to eight, and much beyond.
sched::StepCost learned(double us_a_token) {
  sched::StepCost cost;
  Rng rng(1);
  for (int i = 0; i < 3000; ++i) {
    sched::StepShape s;
    s.add(1 + int(rng.below(100)), 200, 1);
    cost.observe(s, TimeUs(20000 + us_a_token * s.tokens));
  }
  return cost;
}

Candidate sequence(float lookup, float model) {
  Candidate c;
  c.length = 200;
  c.lookup.count = lookup > 0 ? 8 : 0;
  c.model.count = model > 0 ? 8 : 0;
  for (int j = 0; j < 8; ++j) c.lookup.of[j] = lookup, c.model.of[j] = model;
  return c;
}

std::vector<Choice> decide(const sched::StepCost& cost, const std::vector<Candidate>& candidates, double pass_us) {
  StepPrice price(&cost);
  Control control(&price);
  Situation now;
  for (size_t i = 0; i < candidates.size(); ++i) now.base.add(1, 200, 1);
  now.progress = double(candidates.size());
  if (pass_us > 0) now.pass_us = [&](int, int64_t) { return pass_us; };
  std::vector<Choice> choices(candidates.size());
  control.choose(now, candidates, choices);
  return choices;
}

TEST(Control, DraftsWhereTokensAMicrosecondRise) {
  const sched::StepCost idle = learned(100), busy = learned(400000);
  EXPECT_EQ(decide(idle, {sequence(0.9f, 0)}, 0)[0].lookup, 8);
  EXPECT_EQ(decide(busy, {sequence(0.9f, 0)}, 0)[0].lookup, 0) << "a token costs what it brings";
  EXPECT_EQ(decide(idle, {sequence(0.004f, 0)}, 0)[0].lookup, 0);
  EXPECT_GE(decide(idle, {sequence(0, 0.9f)}, 5000)[0].model, 2);
  EXPECT_EQ(decide(idle, {sequence(0, 0.9f)}, 30000)[0].model, 0) << "passes cost more than steps";
  EXPECT_EQ(decide(idle, {sequence(0, 0.15f)}, 5000)[0].model, 0);
  // The cheapest that earns: what a lookup gives is not asked of the model.
  const auto both = decide(idle, {sequence(0.9f, 0.9f)}, 5000);
  EXPECT_EQ(both[0].model, 0);
  EXPECT_EQ(both[0].lookup, 8);
  // Each sequence for itself.
  const auto two = decide(idle, {sequence(0.95f, 0), sequence(0.01f, 0)}, 0);
  EXPECT_GT(two[0].lookup, 4);
  EXPECT_EQ(two[1].lookup, 0);
}

TEST(Control, NothingWhileNothingIsKnown) {
  EXPECT_EQ(decide(sched::StepCost(), {sequence(0.9f, 0.9f)}, 1)[0].lookup, 0);
}

TEST(StepPrice, LearnsTheStepsBetweenSizesAndForgetsAStall) {
  const sched::StepCost cost = learned(100);
  StepPrice price(&cost);
  sched::StepShape eight, nine;
  for (int i = 0; i < 9; ++i) (i < 8 ? eight : nine).add(1, 200, 1);
  nine = eight;
  nine.add(1, 200, 1);
  const double before = price.predict(nine);
  for (int i = 0; i < 30; ++i) price.observe(nine, TimeUs(1.5 * before));
  EXPECT_NEAR(price.predict(nine), 1.5 * before, 0.05 * before);
  EXPECT_NEAR(price.predict(eight), cost.predict(eight), 1);
  for (int i = 0; i < 8000; ++i) price.observe(eight, TimeUs(cost.predict(eight)));
  EXPECT_LT(price.predict(nine), 1.02 * before) << "long not seen, so worth another try";
}

}  // namespace
}  // namespace sluice::draft
