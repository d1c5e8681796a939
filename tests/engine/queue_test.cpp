// What waits for its turn: bounds by requests and by tokens, how long one may wait, what a refused client is told, targets.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "engine/engine.h"

namespace sluice::engine {
namespace {

// Every step takes this long and draws token 1 in every row.
class SlowExecutor final : public exec::Executor {
 public:
  explicit SlowExecutor(std::chrono::microseconds step) : step_(step) {}
  Status submit(const sched::BatchPlan& plan) override {
    rows_ = plan.rows.size();
    return {};
  }
  Status collect(sched::StepResult& result) override {
    std::this_thread::sleep_for(step_);
    result.rows.resize(rows_);
    for (auto& t : result.rows) t.token = 1;
    return {};
  }
  int total_blocks() const override { return 64; }
  int block_tokens() const override { return 16; }

 private:
  std::chrono::microseconds step_;
  size_t rows_ = 0;
};

struct Sink final : sched::ResponseSink {
  void push(sched::TokenEvent&& e) noexcept override {
    std::lock_guard lock(mutex);
    if (e.finish == sched::FinishReason::kNone) return;
    end = std::move(e);
    ended = true;
    changed.notify_all();
  }
  sched::TokenEvent& wait() {
    std::unique_lock lock(mutex);
    EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(30), [&] { return ended; }));
    return end;
  }
  std::mutex mutex;
  std::condition_variable changed;
  sched::TokenEvent end;
  bool ended = false;
};

struct Rig {
  explicit Rig(std::function<void(EngineOptions&)> set = nullptr, std::chrono::microseconds step = std::chrono::milliseconds(2)) {
    EngineOptions o;
    o.scheduler.total_blocks = 64;
    o.scheduler.max_sequences = 1;
    o.scheduler.max_step_tokens = 64;
    o.scheduler.max_context = 1024;
    o.scheduler.vocab = 100;
    if (set) set(o);
    engine = std::make_unique<Engine>(o, nullptr, std::make_unique<SlowExecutor>(step), &clock);
  }
  Status send(std::shared_ptr<Sink> sink, int prompt_tokens, int max_tokens, std::function<void(sched::Submission&)> set = nullptr) {
    sched::Submission s;
    s.prompt.assign(size_t(prompt_tokens), 7);
    s.max_tokens = max_tokens;
    s.sink = std::move(sink);
    if (set) set(s);
    return engine->submit(std::move(s));
  }
  void until_running() {
    for (int i = 0; i < 1000 && engine->stats().running.load() == 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  SteadyClock clock;
  std::unique_ptr<Engine> engine;
};

TEST(Queue, IsBoundedByTokensButOneAlwaysFits) {
  Rig rig([](EngineOptions& o) { o.max_queue_tokens = 100; });
  auto first = std::make_shared<Sink>(), second = std::make_shared<Sink>(), third = std::make_shared<Sink>();
  ASSERT_TRUE(rig.send(first, 16, 300).ok());
  rig.until_running();
  ASSERT_TRUE(rig.send(second, 200, 1).ok());  // over the limit, and alone
  const Status refused = rig.send(third, 10, 1);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kOverloaded);
  EXPECT_NE(refused.error().message.find("210"), std::string::npos) << refused.error().message;
  EXPECT_NE(refused.error().message.find("100"), std::string::npos);
  EXPECT_EQ(second->wait().finish, sched::FinishReason::kLength);
  EXPECT_TRUE(rig.send(third, 10, 1).ok());
  EXPECT_EQ(third->wait().finish, sched::FinishReason::kLength);
  EXPECT_EQ(rig.engine->stats().waiting_tokens.load(), 0);
}

TEST(Queue, WhoWaitsTooLongIsToldSoAndTheOthersGoOn) {
  Rig rig;
  auto first = std::make_shared<Sink>(), late = std::make_shared<Sink>(), patient = std::make_shared<Sink>();
  ASSERT_TRUE(rig.send(first, 16, 100).ok());  // 0.2 s
  rig.until_running();
  ASSERT_TRUE(rig.send(late, 16, 4, [](auto& s) { s.queue_timeout_us = 50'000; }).ok());
  ASSERT_TRUE(rig.send(patient, 16, 4, [](auto& s) { s.queue_timeout_us = 60'000'000; }).ok());
  auto& end = late->wait();
  EXPECT_EQ(end.finish, sched::FinishReason::kError);
  EXPECT_EQ(end.error.code, ErrorCode::kOverloaded);
  EXPECT_NE(end.error.message.find("50 ms"), std::string::npos) << end.error.message;
  EXPECT_EQ(first->wait().finish, sched::FinishReason::kLength);
  EXPECT_EQ(patient->wait().finish, sched::FinishReason::kLength);
  EXPECT_EQ(rig.engine->stats().expired.load(), 1u);
  for (int i = 0; i < 1000 && !rig.engine->idle(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_TRUE(rig.engine->idle());
}

TEST(Queue, RetryAfterFollowsTheRateAtWhichItDrains) {
  Rig rig([](EngineOptions& o) { o.max_queue = 1000; }, std::chrono::milliseconds(1));
  std::vector<std::shared_ptr<Sink>> sinks;
  for (int i = 0; i < 400; ++i) {  // each takes 20 steps: some 50 a second, so the queue is about eight seconds long
    sinks.push_back(std::make_shared<Sink>());
    ASSERT_TRUE(rig.send(sinks.back(), 16, 20).ok());
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(1500));
  const double rate = rig.engine->stats().drain_per_s.load();
  ASSERT_GT(rate, 0);
  const double ahead = double(rig.engine->stats().waiting.load()) / rate;
  EXPECT_NEAR(rig.engine->retry_after_s(), ahead, 1.5);
  EXPECT_GE(rig.engine->retry_after_s(), 2);
  rig.engine.reset();
}

TEST(Queue, WhoseTargetsAreMetIsCounted) {
  Rig rig;
  auto met = std::make_shared<Sink>(), late = std::make_shared<Sink>(), none = std::make_shared<Sink>();
  ASSERT_TRUE(rig.send(met, 16, 4, [](auto& s) { s.ttft_target_us = s.tpot_target_us = 10'000'000; }).ok());
  met->wait();
  ASSERT_TRUE(rig.send(late, 16, 4, [](auto& s) { s.ttft_target_us = 10'000'000; s.tpot_target_us = 100; }).ok());
  late->wait();
  ASSERT_TRUE(rig.send(none, 16, 4).ok());
  none->wait();
  const Stats& s = rig.engine->stats();
  EXPECT_EQ(s.targets_met.load(), 1u);
  EXPECT_EQ(s.targets_missed.load(), 1u);
  EXPECT_EQ(s.tpot_missed.load(), 1u);
  EXPECT_EQ(s.ttft_missed.load(), 0u);
}

// One engine is flooded; another, in turns with it, goes on.
TEST(Gate, AFloodedPoolLeavesTheOtherItsTurns) {
  auto gate = std::make_shared<StepGate>(std::vector<double>{1, 1});
  Rig flooded([&](EngineOptions& o) { o.gate = gate; o.gate_member = 0; o.max_queue = 64; }, std::chrono::milliseconds(1));
  Rig calm([&](EngineOptions& o) { o.gate = gate; o.gate_member = 1; }, std::chrono::milliseconds(1));
  std::vector<std::shared_ptr<Sink>> sinks;
  int refused = 0;
  for (int i = 0; i < 200; ++i) {
    sinks.push_back(std::make_shared<Sink>());
    refused += !flooded.send(sinks.back(), 16, 1000).ok();
  }
  EXPECT_GT(refused, 0);
  auto mine = std::make_shared<Sink>();
  const TimeUs begin = calm.clock.now_us();
  ASSERT_TRUE(calm.send(mine, 16, 100).ok());
  EXPECT_EQ(mine->wait().finish, sched::FinishReason::kLength);
  EXPECT_LT(calm.clock.now_us() - begin, 2'000'000);  // some 0.2 s: every other step is its own
  EXPECT_EQ(calm.engine->stats().rejected.load(), 0u);
  flooded.engine.reset();  // ends though the gate is shared, in either order
  auto after = std::make_shared<Sink>();
  ASSERT_TRUE(calm.send(after, 16, 10).ok());
  EXPECT_EQ(after->wait().finish, sched::FinishReason::kLength);
}

}  // namespace
}  // namespace sluice::engine
