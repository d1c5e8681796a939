#include "lab/replay.h"

#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "base/rng.h"
#include "engine/engine.h"
#include "exec/sim_executor.h"

namespace sluice::lab {
namespace {

class CountingSink final : public sched::ResponseSink {
 public:
  explicit CountingSink(std::atomic<int>* open) : open_(open) {}
  void push(sched::TokenEvent&& e) noexcept override {
    if (e.finish != sched::FinishReason::kNone) --*open_;
  }

 private:
  std::atomic<int>* open_;
};

// An engine under a random load with cancellations, in a tight cache; writes a recording.
void record(const std::string& path, int requests, std::shared_ptr<draft::Speculator> speculator = nullptr) {
  engine::EngineOptions o;
  o.scheduler.total_blocks = 60;
  o.scheduler.max_sequences = 12;
  o.scheduler.max_step_tokens = 64;
  o.scheduler.step_us = 900;
  o.scheduler.max_context = 900;
  o.scheduler.vocab = 1000;
  o.recorder = std::move(*engine::Recorder::open(path));
  o.speculator = std::move(speculator);
  const SteadyClock clock;
  auto cost = [](const sched::StepShape& s) { return 100.0 + 10 * s.tokens; };
  engine::Engine engine(o, nullptr, std::make_unique<exec::SimExecutor>(cost, 60, 16), &clock);
  Rng rng(9);
  std::atomic<int> open{0};
  std::vector<std::shared_ptr<std::atomic<bool>>> flags;
  for (int i = 0; i < requests; ++i) {
    sched::Submission s;
    s.prompt.assign(1 + rng.below(300), 7);
    for (size_t k = rng.below(uint32_t(s.prompt.size())); k < s.prompt.size(); ++k) s.prompt[k] = int32_t(rng.below(1000));
    s.max_tokens = int(1 + rng.below(60));
    s.n = rng.below(6) == 0 ? 2 : 1;
    if (rng.below(3) == 0) s.request_class = sched::RequestClass::kBatch;
    s.cancelled = std::make_shared<std::atomic<bool>>(false);
    flags.push_back(s.cancelled);
    const int choices = s.n;
    s.sink = std::make_shared<CountingSink>(&open);
    open += choices;
    if (!engine.submit(std::move(s)).ok()) open -= choices;
    if (rng.below(5) == 0) flags[rng.below(uint32_t(flags.size()))]->store(true);
    if (rng.below(4) == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
  }
  while (open > 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

TEST(Replay, GivesTheRecordedPlans) {
  const std::string path = testing::TempDir() + "/recording.jsonl";
  record(path, 200);
  const auto r = replay(path, nullptr);
  ASSERT_TRUE(r.ok()) << r.error().message;
  EXPECT_GT(r->steps, 100u);
  EXPECT_EQ(r->equal, r->steps) << r->difference;
}

// Drafts are inputs of the scheduler, and written down as such. The executor's tokens are all alike, so lookups are soon right.
TEST(Replay, GivesTheRecordedPlansWithDrafts) {
  const std::string path = testing::TempDir() + "/recording3.jsonl";
  auto speculator = std::make_shared<draft::Speculator>(draft::SpeculatorOptions{}, nullptr);
  record(path, 120, speculator);
  EXPECT_GT(speculator->alpha(), 0.5);
  std::ifstream in(path);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  EXPECT_NE(text.find("{\"drafts\":"), std::string::npos);
  const auto r = replay(path, nullptr);
  ASSERT_TRUE(r.ok()) << r.error().message;
  EXPECT_GT(r->steps, 50u);
  EXPECT_EQ(r->equal, r->steps) << r->difference;
}

// A recording of another schedule must not pass.
TEST(Replay, SeesADifference) {
  const std::string path = testing::TempDir() + "/recording2.jsonl";
  record(path, 40);
  std::ifstream in(path);
  std::string text((std::istreambuf_iterator<char>(in)), {}), changed = text;
  const size_t at = changed.find("\"max_step_tokens\":64");
  ASSERT_NE(at, std::string::npos);
  changed.replace(at, 20, "\"max_step_tokens\":50");
  std::ofstream(path) << changed;
  const auto r = replay(path, nullptr);
  ASSERT_TRUE(r.ok()) << r.error().message;
  EXPECT_LT(r->equal, r->steps);
  EXPECT_GT(r->first_unequal, 0u);
  // One that was cut off is good as far as it goes; nonsense is named by its line.
  std::ofstream(path) << text.substr(0, text.size() / 2);
  EXPECT_TRUE(replay(path, nullptr).ok());
  for (const char* bad : {"", "{}\n{}\n", "{\"submit\":{}}\n{}\n", "{\"recording\":99}\n{}\n", "{\"recording\":1,\"options\":{},\"step_cost\":[]}\n{}\n"}) {
    std::ofstream(path) << bad;
    EXPECT_FALSE(replay(path, nullptr).ok()) << bad;
  }
}

}  // namespace
}  // namespace sluice::lab
