// The engine on tiny random models with real kernels: a request's tokens and log-probabilities are bitwise the same whatever
// its neighbours, chunk size, cache state, block size or preemptions; limits, stops, cancellation and faults.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "engine/engine.h"
#include "lab/loaded_model.h"
#include "tests/engine/tiny_model.h"
#include "tests/engine/waiter.h"

namespace sluice {
namespace {

using testing::request, testing::Waiter;

struct Config {
  int threads = 2, blocks = 200, block_tokens = 16, max_sequences = 16, max_step_tokens = 64, max_queue = 512, depth = 0;
  std::string isa, kv_type = "f16", objective = "latency";
  bool prefix_cache = true;
  int swap_blocks = 0;
};

struct Rig {
  Rig(const testing::TinyModel& file, const Config& s) {
    lab::LoadOptions o;
    o.model = file.path();
    o.isa = s.isa;
    o.objective = s.objective;
    // Another device's kernels in place of the best of this machine.
    if (const char* device = std::getenv("SLUICE_TEST_DEVICE"); device && s.isa.empty()) o.device = device;
    o.deterministic = true;
    o.threads = s.threads;
    o.kv_type = s.kv_type;
    o.block_tokens = s.block_tokens;
    o.max_sequences = s.max_sequences;
    o.max_step_tokens = s.max_step_tokens;
    o.prefix_cache = s.prefix_cache;
    o.depth = s.depth;
    o.kv_memory = "64MiB";
    auto loaded = lab::load_model(o, nullptr);
    if (!loaded.ok()) ADD_FAILURE() << loaded.error().message;
    model = std::make_unique<lab::LoadedModel>(std::move(*loaded));
    model->device.total_blocks = model->scheduler.total_blocks = s.blocks;
    model->device.swap_blocks = model->scheduler.swap_blocks = s.swap_blocks;
    model->scheduler.swap_block_us = 1e-3;  // always sooner than computing again
    engine::EngineOptions options;
    options.scheduler = model->scheduler;
    options.max_queue = size_t(s.max_queue);
    auto executor = model->make_executor();
    if (!executor.ok()) ADD_FAILURE() << executor.error().message;
    engine = std::make_unique<engine::Engine>(options, model->tokenizer, std::move(*executor), &clock);
  }
  std::shared_ptr<Waiter> send(sched::Submission s) {
    auto w = std::make_shared<Waiter>(s.n);
    s.sink = w;
    const Status status = engine->submit(std::move(s));
    EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
    return w;
  }
  SteadyClock clock;
  std::unique_ptr<lab::LoadedModel> model;
  std::unique_ptr<engine::Engine> engine;
};

using Text = std::pair<std::vector<int32_t>, std::vector<float>>;

std::vector<Text> run_alone(const testing::TinyModel& file, Config setup, int requests) {
  setup.max_sequences = 1;
  setup.prefix_cache = false;
  Rig rig(file, setup);
  std::vector<Text> out;
  for (int i = 0; i < requests; ++i) {
    auto c = rig.send(request(5 + 17 * i, uint64_t(i + 1)))->wait()[0];
    out.emplace_back(c.tokens, c.logprobs);
  }
  return out;
}

std::vector<Text> run_together(const testing::TinyModel& file, const Config& setup, int requests, uint64_t* preemptions = nullptr, uint64_t* swaps = nullptr) {
  Rig rig(file, setup);
  std::vector<std::shared_ptr<Waiter>> waiters;
  for (int i = 0; i < requests; ++i) waiters.push_back(rig.send(request(5 + 17 * i, uint64_t(i + 1))));
  std::vector<Text> out;
  for (auto& w : waiters) out.emplace_back(w->wait()[0].tokens, w->wait()[0].logprobs);
  if (preemptions) *preemptions = rig.engine->stats().preemptions;
  if (swaps) *swaps = rig.engine->stats().swaps;
  return out;
}

class Architectures : public ::testing::TestWithParam<const char*> {
 protected:
  testing::TinyModel file_{[] {
    testing::TinyShape s;
    s.architecture = GetParam();
    if (s.architecture == "gemma3") s.layers = 7;  // local and global layers
    return s;
  }()};
};

TEST_P(Architectures, NeighboursChunksAndPreemptionChangeNothing) {
  for (const char* isa : {"reference", ""}) {
    SCOPED_TRACE(isa);
    Config base;
    base.isa = isa;
    const auto alone = run_alone(file_, base, 10);
    EXPECT_EQ(run_together(file_, base, 10), alone) << "in one batch";
    Config chunks = base;
    chunks.max_step_tokens = 19;
    EXPECT_EQ(run_together(file_, chunks, 10), alone) << "in chunks";
    Config threads = base;
    threads.threads = 3;
    EXPECT_EQ(run_together(file_, threads, 10), alone) << "with 3 threads";
    Config tight = base;
    tight.blocks = 16;
    tight.objective = "throughput";  // prompts that wait for the time they may take would need less at once
    uint64_t preemptions = 0;
    EXPECT_EQ(run_together(file_, tight, 10, &preemptions), alone) << "with preemption";
    EXPECT_GT(preemptions, 0u);
    Config swapping = tight;
    swapping.swap_blocks = 40;
    swapping.prefix_cache = false;
    uint64_t swaps = 0;
    EXPECT_EQ(run_together(file_, swapping, 10, nullptr, &swaps), alone) << "with blocks kept aside";
    EXPECT_GT(swaps, 0u);
    Config large = base;
    large.block_tokens = 64;
    EXPECT_EQ(run_together(file_, large, 10), alone) << "with blocks of 64";
  }
}

// Requests of every kind that share steps: what one step draws is the next one's input.
std::vector<Text> run_mixed(const testing::TinyModel& file, const Config& setup) {
  Rig rig(file, setup);
  std::vector<std::shared_ptr<Waiter>> waiters;
  for (int i = 0; i < 24; ++i) {
    sched::Submission s = request(3 + 9 * i % 70, uint64_t(i + 1), 5 + i * 5 % 37, i % 3 ? 0.9f : 0.0f);
    if (i % 4 == 1) s.sampling.top_p = 0.8f;
    if (i % 5 == 2) s.sampling.repetition_penalty = 1.2f, s.sampling.frequency_penalty = 0.3f;
    if (i % 6 == 3) s.n = 3;
    if (i % 7 == 4) s.prompt_logprobs = 0;
    if (i % 2) for (int t = 0; t < 256; t += 6) s.stop_token_ids.push_back(t);
    if (i % 8 == 5) s.min_tokens = 4;
    waiters.push_back(rig.send(std::move(s)));
  }
  std::vector<Text> out;
  for (auto& w : waiters)
    for (auto& c : w->wait()) {
      out.emplace_back(c.tokens, c.logprobs);
      out.emplace_back(std::vector<int32_t>{int32_t(c.finish)}, c.prompt_logprobs);
    }
  while (!rig.engine->idle()) std::this_thread::yield();
  EXPECT_EQ(rig.engine->stats().running, 0);
  return out;
}

TEST_P(Architectures, RunningAheadGivesTheTokensOfItsTwin) {
  for (const char* isa : {"reference", ""}) {
    SCOPED_TRACE(isa);
    Config one, two;
    one.isa = two.isa = isa;
    one.depth = 1;
    two.depth = 2;
    const auto alone = run_mixed(file_, one);
    EXPECT_EQ(run_mixed(file_, two), alone);
    two.blocks = 24;
    EXPECT_EQ(run_mixed(file_, two), alone) << "with preemption";
    two.blocks = 200;
    two.max_step_tokens = 17;
    EXPECT_EQ(run_mixed(file_, two), alone) << "in chunks";
  }
}

TEST_P(Architectures, AHotCacheGivesTheColdTokens) {
  for (const char* isa : {"reference", ""}) {
    Config s;
    s.isa = isa;
    Rig rig(file_, s);
    auto cold = rig.send(request(100, 3))->wait()[0];
    auto hot = rig.send(request(100, 3))->wait()[0];
    EXPECT_EQ(cold.cached, 0);
    EXPECT_EQ(hot.cached, 96);
    EXPECT_EQ(cold.tokens, hot.tokens);
    EXPECT_EQ(cold.logprobs, hot.logprobs);
  }
}

TEST_P(Architectures, FastKernelsAgreeWithTheReference) {
  Config reference, fast;
  reference.isa = "reference";
  reference.kv_type = "f32";
  auto s = request(60, 5, 1, 0);
  s.prompt_logprobs = 0;
  auto a = Rig(file_, reference).send(s)->wait()[0].prompt_logprobs;
  auto b = Rig(file_, fast).send(s)->wait()[0].prompt_logprobs;
  ASSERT_EQ(a.size(), 59u);
  ASSERT_EQ(b.size(), 59u);
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(double(a[i]) - double(b[i]));
  EXPECT_LT(sum / 59, 0.1);  // int8 activations, a scale each 32 values
  EXPECT_GT(sum, 0);
}

class CacheTypes : public ::testing::TestWithParam<const char*> {
 protected:
  testing::TinyModel file_{[] {
    testing::TinyShape s;
    s.architecture = "qwen2";
    return s;
  }()};
  Config config(const char* isa) const {
    Config c;
    c.isa = isa;
    c.kv_type = GetParam();
    return c;
  }
};

// What a sequence holds depends on its tokens alone: log-probabilities are the same to the bit.
TEST_P(CacheTypes, ChunksCopiesAndPreemptionChangeNothing) {
  for (const char* isa : {"reference", ""}) {
    SCOPED_TRACE(isa);
    const Config base = config(isa);
    const auto alone = run_alone(file_, base, 10);
    Config chunks = base;
    chunks.max_step_tokens = 19;
    chunks.threads = 3;
    EXPECT_EQ(run_together(file_, chunks, 10), alone) << "in chunks";
    Config tight = base;
    tight.blocks = 16;
    tight.objective = "throughput";
    uint64_t preemptions = 0, swaps = 0;
    EXPECT_EQ(run_together(file_, tight, 10, &preemptions), alone) << "with preemption";
    EXPECT_GT(preemptions, 0u);
    tight.swap_blocks = 40;
    tight.prefix_cache = false;
    EXPECT_EQ(run_together(file_, tight, 10, nullptr, &swaps), alone) << "with blocks kept aside";
    EXPECT_GT(swaps, 0u);
    Config large = base;
    large.block_tokens = 64;
    EXPECT_EQ(run_together(file_, large, 10), alone) << "with blocks of 64";
  }
}

TEST_P(CacheTypes, HitsAndForksGiveTheColdTokens) {
  for (const char* isa : {"reference", ""}) {
    Rig rig(file_, config(isa));
    const auto cold = rig.send(request(100, 3))->wait()[0];
    const auto hot = rig.send(request(100, 3))->wait()[0];
    EXPECT_EQ(hot.cached, 96);
    EXPECT_EQ(cold.logprobs, hot.logprobs);
    sched::Submission forked = request(37, 9);  // the last block is partial, and copied
    forked.n = 3;
    const auto together = rig.send(forked)->wait();
    Rig other(file_, config(isa));
    sched::Submission again = request(37, 9);
    again.n = 3;
    const auto repeated = other.send(again)->wait();
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(together[i].logprobs, repeated[i].logprobs);
    EXPECT_EQ(rig.send(request(37, 9))->wait()[0].logprobs, together[0].logprobs);
    Config large = config(isa);
    large.block_tokens = 64;
    Rig copies(file_, large);  // two groups of the copied block are closed, the third is open
    sched::Submission copied = request(37, 9);
    copied.n = 3;
    const auto of_copies = copies.send(copied)->wait();
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(of_copies[i].logprobs, together[i].logprobs);
  }
}

TEST_P(CacheTypes, FastKernelsAgreeWithTheReference) {
  auto s = request(60, 5, 1, 0);
  s.prompt_logprobs = 0;
  const auto a = Rig(file_, config("reference")).send(s)->wait()[0].prompt_logprobs;
  const auto b = Rig(file_, config("")).send(s)->wait()[0].prompt_logprobs;
  ASSERT_EQ(a.size(), b.size());
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::abs(double(a[i]) - double(b[i]));
  EXPECT_LT(sum / double(a.size()), 0.1);
}

std::vector<const char*> cache_types() {
  if (std::getenv("SLUICE_TEST_DEVICE")) return {"fp8", "int8"};  // what `cuda` has; the others are refused by name
  return {"fp8", "int8", "int4", "int8/fp8", "k8v4"};
}
INSTANTIATE_TEST_SUITE_P(All, CacheTypes, ::testing::ValuesIn(cache_types()), [](const auto& i) {
  std::string name = i.param;
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
});

INSTANTIATE_TEST_SUITE_P(All, Architectures, ::testing::Values("llama", "qwen2", "gemma3"));

class EngineTest : public ::testing::Test {
 protected:
  testing::TinyModel file_{testing::TinyShape{}};
};

TEST_F(EngineTest, SamplesOfOneRequestEqualSeparateRequests) {
  Rig rig(file_, Config{});
  auto s = request(45, 9);
  s.n = 4;
  auto together = rig.send(s)->wait();
  for (int i = 0; i < 4; ++i) {
    auto one = request(45, 9);
    one.sampling.choice = 0;
    Config alone;
    alone.prefix_cache = false;
    auto n = one;
    n.n = i + 1;
    EXPECT_EQ(Rig(file_, alone).send(n)->wait()[size_t(i)].tokens, together[size_t(i)].tokens) << i;
  }
  EXPECT_NE(together[0].tokens, together[1].tokens);
}

TEST_F(EngineTest, StopsEndWhereTheyShould) {
  Rig rig(file_, Config{});
  const auto free_run = rig.send(request(20, 4, 40))->wait()[0];
  ASSERT_EQ(free_run.finish, sched::FinishReason::kLength);
  ASSERT_EQ(free_run.tokens.size(), 40u);
  // A stop string out of the middle of what it says: the text ends before its first occurrence.
  const std::string stop = free_run.text.substr(free_run.text.size() / 2, 3);
  auto s = request(20, 4, 40);
  s.stop = {stop};
  const auto stopped = rig.send(s)->wait()[0];
  EXPECT_EQ(stopped.finish, sched::FinishReason::kStop);
  EXPECT_EQ(stopped.text, free_run.text.substr(0, free_run.text.find(stop)));
  auto t = request(20, 4, 40);
  t.stop_token_ids = {free_run.tokens[10]};
  const auto by_token = rig.send(t)->wait()[0];
  EXPECT_EQ(by_token.finish, sched::FinishReason::kStop);
  EXPECT_LE(by_token.tokens.size(), 11u);
  t.min_tokens = 30;
  const auto late = rig.send(t)->wait()[0];
  EXPECT_GE(late.tokens.size(), 30u);
  for (size_t i = 0; i < 30; ++i) EXPECT_NE(late.tokens[i], free_run.tokens[10]);
}

TEST_F(EngineTest, PromptLogprobsComeOnceAndInOrderWhateverTheChunk) {
  Config small;
  small.max_step_tokens = 17;
  auto s = request(90, 8, 3);
  s.prompt_logprobs = 2;
  s.n = 2;
  auto a = Rig(file_, Config{}).send(s)->wait();
  auto b = Rig(file_, small).send(s)->wait();
  ASSERT_EQ(a[0].prompt_logprobs.size(), 89u);
  EXPECT_TRUE(a[1].prompt_logprobs.empty());
  EXPECT_EQ(a[0].prompt_logprobs, b[0].prompt_logprobs);
}

TEST_F(EngineTest, NothingToGenerateStillScoresThePrompt) {
  auto s = request(30, 8, 0);
  s.prompt_logprobs = 0;
  auto c = Rig(file_, Config{}).send(s)->wait()[0];
  EXPECT_EQ(c.finish, sched::FinishReason::kLength);
  EXPECT_TRUE(c.tokens.empty());
  EXPECT_EQ(c.prompt_logprobs.size(), 29u);
}

TEST_F(EngineTest, RefusesWhatCanNeverFitAndWhatFindsNoPlace) {
  Config s;
  s.blocks = 8;
  s.max_sequences = 1;
  s.max_queue = 4;
  Rig rig(file_, s);
  const Status never = rig.engine->submit(request(100, 1, 100));
  ASSERT_FALSE(never.ok());
  EXPECT_EQ(never.error().code, ErrorCode::kContextLength);
  int refused = 0;
  std::vector<std::shared_ptr<Waiter>> accepted;
  for (int i = 0; i < 60; ++i) {
    auto sub = request(20, uint64_t(i), 80);
    auto w = std::make_shared<Waiter>(1);
    sub.sink = w;
    const Status status = rig.engine->submit(std::move(sub));
    if (status.ok()) accepted.push_back(w);
    else {
      EXPECT_EQ(status.error().code, ErrorCode::kOverloaded);
      ++refused;
    }
  }
  EXPECT_GT(refused, 0);
  EXPECT_GE(accepted.size(), 4u);
  for (auto& w : accepted) EXPECT_EQ(w->wait()[0].tokens.size(), 80u);
}

TEST_F(EngineTest, TwoHundredRequestsShareSixtyFourBlocks) {
  Config s;
  s.blocks = 64;
  s.max_sequences = 64;
  Rig rig(file_, s);
  std::vector<std::shared_ptr<Waiter>> waiters;
  for (int i = 0; i < 200; ++i) waiters.push_back(rig.send(request(10 + i % 50, uint64_t(i), 20)));
  for (auto& w : waiters) EXPECT_EQ(w->wait()[0].tokens.size(), 20u);
  EXPECT_EQ(rig.engine->stats().blocks_held, 0);
  EXPECT_LE(rig.engine->stats().max_waste_tokens_per_sequence, 16);
}

TEST_F(EngineTest, CancelledRequestsGiveEverythingBack) {
  Rig rig(file_, Config{});
  std::vector<std::shared_ptr<Waiter>> waiters;
  for (int i = 0; i < 50; ++i) {
    auto s = request(60, uint64_t(i), 400);
    s.cancelled = std::make_shared<std::atomic<bool>>(false);
    auto flag = s.cancelled;
    waiters.push_back(rig.send(std::move(s)));
    flag->store(true);
    rig.engine->poke();
  }
  for (auto& w : waiters) EXPECT_EQ(w->wait()[0].finish, sched::FinishReason::kCancelled);
  while (!rig.engine->idle()) std::this_thread::yield();
  EXPECT_EQ(rig.engine->stats().blocks_held, 0);
  EXPECT_EQ(rig.engine->stats().finished_cancelled, 50u);
}

// A device that fails at its third step.
class FaultyExecutor final : public exec::Executor {
 public:
  Status submit(const sched::BatchPlan& plan) override {
    rows_ = plan.rows.size();
    if (++steps_ >= 3) return Error{ErrorCode::kInternal, "the device went away", {}};
    return {};
  }
  Status collect(sched::StepResult& r) override {
    r.rows.resize(rows_);
    for (auto& row : r.rows) row.token = 1;
    return {};
  }
  int total_blocks() const override { return 100; }
  int block_tokens() const override { return 16; }

 private:
  int steps_ = 0;
  size_t rows_ = 0;
};

TEST(EngineFault, EndsEveryRequestWithAnErrorAndSaysSo) {
  SteadyClock clock;
  engine::EngineOptions o;
  o.scheduler.total_blocks = 100;
  o.scheduler.max_context = 1000;
  o.scheduler.vocab = 300;
  engine::Engine engine(o, nullptr, std::make_unique<FaultyExecutor>(), &clock);
  auto s = request(10, 1, 50);
  auto w = std::make_shared<Waiter>(1);
  s.sink = w;
  ASSERT_TRUE(engine.submit(std::move(s)).ok());
  auto c = w->wait()[0];
  EXPECT_EQ(c.finish, sched::FinishReason::kError);
  EXPECT_EQ(c.error.code, ErrorCode::kUnavailable);
  EXPECT_FALSE(engine.health().healthy);
  EXPECT_EQ(engine.submit(request(10, 1)).error().code, ErrorCode::kUnavailable);
}

// A device whose third step reads far outside its memory. It never recovers, so this test needs a process of its own.
class CorruptingExecutor final : public exec::Executor {
 public:
  explicit CorruptingExecutor(std::unique_ptr<exec::Executor> device) : device_(std::move(device)) {}
  Status submit(const sched::BatchPlan& plan) override {
    if (++steps_ < 3) return device_->submit(plan);
    sched::BatchPlan wrong = plan;
    wrong.token_ids[0] = 1 << 30;
    return device_->submit(wrong);
  }
  Status collect(sched::StepResult& r) override { return device_->collect(r); }
  std::string describe_in_flight() const override { return device_->describe_in_flight(); }
  int depth() const override { return device_->depth(); }
  int total_blocks() const override { return device_->total_blocks(); }
  int block_tokens() const override { return device_->block_tokens(); }

 private:
  std::unique_ptr<exec::Executor> device_;
  int steps_ = 0;
};

TEST_F(EngineTest, ADeviceFaultEndsStreamsWithAnError) {
  if (!std::getenv("SLUICE_TEST_FAULT")) GTEST_SKIP() << "SLUICE_TEST_FAULT=1 and SLUICE_TEST_DEVICE run it, in a process of its own";
  Rig rig(file_, Config{});
  rig.engine.reset();
  engine::EngineOptions options;
  options.scheduler = rig.model->scheduler;
  auto executor = rig.model->make_executor();
  ASSERT_TRUE(executor.ok());
  rig.engine = std::make_unique<engine::Engine>(options, rig.model->tokenizer, std::make_unique<CorruptingExecutor>(std::move(*executor)), &rig.clock);
  auto waiters = {rig.send(request(20, 1, 200)), rig.send(request(30, 2, 200))};
  for (auto& w : waiters) {
    const auto c = w->wait()[0];
    EXPECT_EQ(c.finish, sched::FinishReason::kError);
    EXPECT_EQ(c.error.code, ErrorCode::kUnavailable);
    EXPECT_NE(c.error.message.find("device fault"), std::string::npos) << c.error.message;
  }
  EXPECT_TRUE(rig.engine->faulted());
  EXPECT_FALSE(rig.engine->health().healthy);
  EXPECT_EQ(rig.engine->submit(request(10, 1)).error().code, ErrorCode::kUnavailable);
}

// A device that hangs: the watchdog tells.
class HangingExecutor final : public exec::Executor {
 public:
  explicit HangingExecutor(std::atomic<bool>* release) : release_(release) {}
  Status submit(const sched::BatchPlan& plan) override {
    rows_ = plan.rows.size();
    while (!*release_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return {};
  }
  Status collect(sched::StepResult& r) override {
    r.rows.resize(rows_);
    return {};
  }
  int total_blocks() const override { return 100; }
  int block_tokens() const override { return 16; }

 private:
  std::atomic<bool>* release_;
  size_t rows_ = 0;
};

TEST(EngineWatchdog, TripsWhenWorkWaitsAndNothingRuns) {
  std::atomic<bool> release{false};
  SteadyClock clock;
  engine::EngineOptions o;
  o.scheduler.total_blocks = 100;
  o.scheduler.max_context = 1000;
  o.scheduler.vocab = 300;
  o.watchdog_us = 50'000;
  engine::Engine engine(o, nullptr, std::make_unique<HangingExecutor>(&release), &clock);
  EXPECT_TRUE(engine.health().healthy);
  auto s = request(10, 1, 2);
  auto w = std::make_shared<Waiter>(1);
  s.sink = w;
  ASSERT_TRUE(engine.submit(std::move(s)).ok());
  for (int i = 0; i < 400 && engine.health().healthy; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_FALSE(engine.health().healthy);
  EXPECT_NE(engine.health().reason.find("no step"), std::string::npos);
  release = true;
  w->wait();
  EXPECT_TRUE(engine.health().healthy);
}

}  // namespace
}  // namespace sluice
