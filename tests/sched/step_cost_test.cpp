#include "sched/step_cost.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "base/rng.h"

namespace sluice::sched {
namespace {

StepShape shape(int decodes, int64_t length, int chunk, int64_t chunk_end) {
  StepShape s;
  for (int i = 0; i < decodes; ++i) s.add(1, length, 1);
  if (chunk > 0) s.add(chunk, chunk_end, 0);
  return s;
}

// A machine: weights cost 1.5 ms however few the tokens are, arithmetic counts beyond eight of them; then cache and attention.
double machine_us(const StepShape& s) {
  return std::max(1500.0, 190.0 * s.tokens) + 400 + 0.02 * double(s.cached_tokens) + 0.004 * double(s.pairs) + 25 * s.rows;
}

StepShape random_step(Rng& rng) {
  const int decodes = int(rng.below(33));
  const int chunk = rng.below(3) == 0 ? int(1 + rng.below(512)) : decodes == 0 ? 1 : 0;
  return shape(decodes, 100 + rng.below(2000), chunk, chunk + int64_t(rng.below(4000)));
}

TEST(StepCost, LearnsAMachineWithinTwoHundredSteps) {
  Rng rng(3);
  StepCost cost;
  EXPECT_EQ(cost.predict(shape(4, 100, 0, 0)), 0);
  for (int i = 0; i < 200; ++i) {
    const StepShape s = random_step(rng);
    cost.observe(s, TimeUs(machine_us(s) * (0.97 + 0.06 * rng.uniform())));
  }
  std::vector<double> errors;
  for (int i = 0; i < 500; ++i) {
    const StepShape s = random_step(rng);
    errors.push_back(std::abs(cost.predict(s) - machine_us(s)) / machine_us(s));
  }
  std::sort(errors.begin(), errors.end());
  EXPECT_LT(errors[450], 0.15);
}

TEST(StepCost, FollowsAMachineThatSlowsDown) {
  Rng rng(4);
  StepCost cost;
  for (int i = 0; i < 3000; ++i) {
    const StepShape s = random_step(rng);
    cost.observe(s, TimeUs(machine_us(s) * (i < 1000 ? 1 : 2)));
  }
  EXPECT_LT(cost.error_p90(), 0.15);
}

TEST(StepCost, ForgetsAStallAndNeverFallsAsStepsGrow) {
  Rng rng(5);
  StepCost cost;
  for (int i = 0; i < 600; ++i) {
    const StepShape s = random_step(rng);
    cost.observe(s, i % 97 == 96 ? 400'000 : TimeUs(machine_us(s)));
  }
  double last = 0;
  for (int chunk = 0; chunk < 600; ++chunk) {
    const double us = cost.predict(shape(8, 500, chunk, 3000 + chunk));
    EXPECT_GE(us, last);
    last = us;
  }
  EXPECT_LT(cost.error_p90(), 0.25);
}

// Steps that are long now and then: what is predicted adds up to what they take, and the spread says how they differ.
TEST(StepCost, IsNeitherHighNorLowOverAll) {
  Rng rng(7);
  StepCost cost;
  const auto took = [&](const StepShape& s) { return machine_us(s) * (rng.below(20) == 0 ? 1.9 : 0.9 + 0.1 * double(rng.uniform())); };
  for (int i = 0; i < 3000; ++i) {
    const StepShape s = random_step(rng);
    cost.observe(s, TimeUs(took(s)));
  }
  double predicted = 0, measured = 0;
  for (int i = 0; i < 3000; ++i) {
    const StepShape s = random_step(rng);
    predicted += cost.predict(s);
    measured += took(s);
  }
  EXPECT_NEAR(predicted / measured, 1, 0.02);
  EXPECT_NEAR(cost.spread(0.5), 0.95, 0.05);
  EXPECT_GT(cost.spread(0.98), 1.6);
  EXPECT_LE(cost.spread(0), cost.spread(0.2));
  StepCost kept;
  ASSERT_TRUE(kept.restore(cost.state()));
  EXPECT_EQ(kept.spread(0.7), cost.spread(0.7));
}

TEST(StepCost, DoesTheSameAfterARestart) {
  Rng rng(6);
  StepCost a, b;
  for (int i = 0; i < 50; ++i) {
    const StepShape s = random_step(rng);
    a.observe(s, TimeUs(machine_us(s)));
  }
  ASSERT_TRUE(b.restore(a.state()));
  for (int i = 0; i < 50; ++i) {
    const StepShape s = random_step(rng);
    EXPECT_EQ(a.predict(s), b.predict(s));
    a.observe(s, TimeUs(machine_us(s)));
    b.observe(s, TimeUs(machine_us(s)));
  }
  std::vector<double> bad = a.state();
  bad[3] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(b.restore(bad));
  bad.pop_back();
  EXPECT_FALSE(b.restore(bad));
  // All but the spread, which is of the steps that each has seen itself.
  const auto model = [](const StepCost& c) {
    std::vector<double> s = c.state();
    s.resize(s.size() - StepCost::kSpread);
    return s;
  };
  EXPECT_EQ(model(a), model(b));
}

// A load ends with single decodes on a machine that has little else to do: what is kept is of the load.
TEST(StepCost, KeepsWhatALoadCostAndNotItsEnd) {
  Rng rng(8);
  StepCost cost;
  const auto light_step = [&] { return shape(1 + int(rng.below(3)), 100 + rng.below(500), rng.below(2) ? 1 + int(rng.below(30)) : 0, 200); };
  for (int i = 0; i < 4000; ++i) {
    const StepShape s = light_step();
    cost.observe(s, TimeUs(1.25 * machine_us(s)));
  }
  const StepShape one = shape(1, 300, 0, 0), mixed = shape(1, 300, 8, 200);
  const auto more = [&](const StepCost& c) { return c.predict(mixed) - c.predict(one); };
  const double before = more(cost);
  for (int i = 0; i < 400; ++i) cost.observe(one, TimeUs(machine_us(one)));
  StepCost kept;
  ASSERT_TRUE(kept.restore(cost.kept()));
  EXPECT_NEAR(cost.predict(one) / machine_us(one), 1, 0.05);
  EXPECT_GT(kept.predict(one), 1.1 * machine_us(one));
  EXPECT_LT(std::abs(more(kept) - before), std::abs(more(cost) - before) / 2);
  // From there it learns as fast as from where it was.
  StepCost recent;
  ASSERT_TRUE(recent.restore(cost.state()));
  for (int i = 0; i < 600; ++i) {
    const StepShape s = light_step();
    kept.observe(s, TimeUs(2 * machine_us(s)));
    recent.observe(s, TimeUs(2 * machine_us(s)));
  }
  EXPECT_LT(kept.error_p90(), 1.1 * recent.error_p90() + 0.02);
}

TEST(StepShape, CountsPairsOfAChunk) {
  StepShape s;
  s.add(3, 10, 1);  // queries at positions 7, 8, 9 see 8 + 9 + 10 keys
  EXPECT_EQ(s.pairs, 27);
  EXPECT_EQ(s.cached_tokens, 10);
}

}  // namespace
}  // namespace sluice::sched
