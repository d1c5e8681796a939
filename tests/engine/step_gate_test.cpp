#include "engine/step_gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <thread>

#include "engine/drain_rate.h"

namespace sluice::engine {
namespace {

// Members that always have work, each step of which is said to take `took` microseconds; counts steps until one has `most`.
std::vector<int> compete(std::vector<double> weights, std::vector<TimeUs> took, int most) {
  StepGate gate(weights);
  const int n = int(weights.size());
  std::vector<std::atomic<int>> steps(static_cast<size_t>(n));
  std::atomic<int> inside{0};
  std::atomic<bool> stop{false};
  std::latch all_here(n);
  std::vector<std::thread> threads;
  for (int i = 0; i < n; ++i)
    threads.emplace_back([&, i] {
      gate.enter(i);  // all are here before any counts
      gate.leave(i, 0);
      all_here.arrive_and_wait();
      while (!stop) {
        gate.enter(i);
        EXPECT_EQ(++inside, 1);
        if (++steps[size_t(i)] >= most) stop = true;
        --inside;
        gate.leave(i, took[size_t(i)]);
      }
      gate.rest(i);
    });
  for (auto& t : threads) t.join();
  return {steps.begin(), steps.end()};
}

TEST(StepGate, TimeGoesByWeightWhateverAStepTakes) {
  const auto steps = compete({1, 1}, {100, 400}, 400);
  EXPECT_NEAR(double(steps[0]) / steps[1], 4, 0.3);
  const auto weighed = compete({3, 1}, {100, 100}, 600);
  EXPECT_NEAR(double(weighed[0]) / weighed[1], 3, 0.3);
}

TEST(StepGate, WhoRestsIsNotWaitedForAndEarnsNothing) {
  StepGate gate({1, 1});
  for (int i = 0; i < 100; ++i) {
    gate.enter(0);
    gate.leave(0, 1000);
  }
  gate.rest(0);
  for (int i = 0; i < 1000; ++i) {  // would wait for ever for a member that rests
    gate.enter(1);
    gate.leave(1, 1000);
  }
  // Back after a pause: level with who is here, so one long step does not make up for all of it.
  gate.enter(0);
  gate.leave(0, 1);
  std::atomic<bool> entered{false};
  std::thread other([&] {
    gate.enter(1);
    entered = true;
    gate.leave(1, 1);
    gate.rest(1);
  });
  for (int i = 0; i < 3; ++i) {
    gate.enter(0);
    gate.leave(0, 1000);
  }
  gate.rest(0);
  other.join();
  EXPECT_TRUE(entered);
}

TEST(DrainRate, CountsOnlyTimeInWhichSomebodyWaits) {
  DrainRate rate;
  EXPECT_EQ(rate.per_second(), 0);
  TimeUs now = 1'000'000;
  rate.note(now, 3, true);
  for (int i = 0; i < 100; ++i) rate.note(now += 100'000, 1, true);  // ten a second for ten seconds
  EXPECT_NEAR(rate.per_second(), 10, 0.5);
  rate.note(now += 100'000, 1, false);
  for (int i = 0; i < 50; ++i) rate.note(now += 1'000'000, 0, false);  // an idle minute says nothing
  EXPECT_NEAR(rate.per_second(), 10, 0.5);
  rate.note(now += 1, 0, true);
  for (int i = 0; i < 400; ++i) rate.note(now += 100'000, 3, true);  // the window forgets the old rate
  EXPECT_NEAR(rate.per_second(), 30, 1);
}

}  // namespace
}  // namespace sluice::engine
