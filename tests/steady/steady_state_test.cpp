// Decoding allocates nothing, once every sequence runs: counted by an operator new of this binary's own.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <new>

#include "engine/engine.h"
#include "lab/loaded_model.h"
#include "tests/engine/tiny_model.h"

namespace {

std::atomic<long> allocations{0};

void* counted_or_null(std::size_t bytes) noexcept {
  ++allocations;
  return std::malloc(bytes ? bytes : 1);
}
void* counted_or_null(std::size_t bytes, std::align_val_t align) noexcept {
  ++allocations;
  const std::size_t a = std::size_t(align);
  return std::aligned_alloc(a, (bytes + a - 1) / a * a);
}
template <class... Align>
void* counted(std::size_t bytes, Align... align) {
  if (void* p = counted_or_null(bytes, align...)) return p;
  throw std::bad_alloc();
}

}  // namespace

// Every form, the plain ones and those that do not throw: one left out would allocate by the sanitizer's and free by ours.
void* operator new(std::size_t bytes) { return counted(bytes); }
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return counted_or_null(bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return counted_or_null(bytes); }
void* operator new(std::size_t bytes, std::align_val_t a, const std::nothrow_t&) noexcept { return counted_or_null(bytes, a); }
void* operator new[](std::size_t bytes, std::align_val_t a, const std::nothrow_t&) noexcept { return counted_or_null(bytes, a); }
void* operator new[](std::size_t bytes) { return counted(bytes); }
void* operator new(std::size_t bytes, std::align_val_t a) { return counted(bytes, a); }
void* operator new[](std::size_t bytes, std::align_val_t a) { return counted(bytes, a); }
void operator delete(void* p) noexcept { std::free(p); }
void operator delete[](void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t) noexcept { std::free(p); }
void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::align_val_t) noexcept { std::free(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }
void operator delete[](void* p, std::size_t, std::align_val_t) noexcept { std::free(p); }

namespace sluice {
namespace {

constexpr int kOutput = 600, kPrompt = 40;

struct CountingSink final : sched::ResponseSink {
  long tokens = 0, bytes = 0;
  void push(sched::TokenEvent&& e) noexcept override {
    tokens += e.has_token;
    bytes += long(e.text.size());
  }
};

sched::Submission submission(std::shared_ptr<sched::ResponseSink> sink, int salt) {
  sched::Submission s;
  for (int i = 0; i < kPrompt; ++i) s.prompt.push_back((i * 7 + salt) % 250);
  s.max_tokens = kOutput;
  s.ignore_eos = true;
  s.sink = std::move(sink);
  s.cancelled = std::make_shared<std::atomic<bool>>(false);
  return s;
}

// Steps the scheduler with a null device, `depth` plans in flight. The result's token is a letter.
class Loop {
 public:
  Loop(const sched::SchedulerOptions& o, std::shared_ptr<const text::Tokenizer> tokenizer, int depth) : scheduler(o, std::move(tokenizer)), depth_(depth) {}
  void step() {
    now_ += 1000;
    outcome_.clear();
    scheduler.reap_cancelled(now_, outcome_);
    while (scheduler.num_in_flight() < depth_) {
      const sched::BatchPlan& plan = scheduler.plan(now_);
      if (plan.empty()) break;
      rows_[(first_ + scheduler.num_in_flight() - 1) % 2] = plan.rows.size();
    }
    result_.rows.resize(rows_[first_]);
    first_ = (first_ + 1) % 2;
    for (auto& row : result_.rows) row.token = 'a';
    scheduler.commit(result_, now_, 1000, outcome_);
    for (sched::Delivery& d : outcome_.deliveries)
      if (d.sink) d.sink->push(std::move(d.event));
  }
  sched::Scheduler scheduler;

 private:
  int depth_, first_ = 0;
  size_t rows_[2] = {};
  TimeUs now_ = 0;
  sched::StepResult result_;
  sched::StepOutcome outcome_;
};

long allocations_of_steady_decode(std::shared_ptr<const text::Tokenizer> tokenizer, int depth, bool batch_class) {
  sched::SchedulerOptions o;
  o.total_blocks = 256 * (kPrompt + kOutput + 16) / 16;
  o.max_sequences = 256;
  o.max_step_tokens = 512;
  o.max_context = 4096;
  o.vocab = 260;
  Loop loop(o, std::move(tokenizer), depth);
  auto sink = std::make_shared<CountingSink>();
  for (int i = 0; i < 256; ++i) {
    sched::Submission s = submission(sink, i);
    if (batch_class && i % 2) s.request_class = sched::RequestClass::kBatch;
    loop.scheduler.admit(std::move(s));
  }
  for (int i = 0; i < 150; ++i) loop.step();
  EXPECT_EQ(loop.scheduler.num_running(), 256);
  const long before = allocations, tokens = sink->tokens;
  for (int i = 0; i < 400; ++i) loop.step();
  const long made = allocations - before;
  EXPECT_EQ(loop.scheduler.num_running(), 256) << "a sequence ended while it was counted";
  EXPECT_GT(sink->tokens - tokens, 400 * 100);
  return made;
}

class Steady : public ::testing::Test {
 protected:
  Steady() {
    lab::LoadOptions load;
    load.model = file_.path();
    load.kv_type = "f32";
    load.kv_memory = "16MiB";
    load.threads = 2;
    load.max_sequences = 8;
    load.context = kPrompt + kOutput + 8;
    auto model = lab::load_model(load, nullptr);
    if (model.ok()) model_ = std::make_unique<lab::LoadedModel>(std::move(*model));
  }
  testing::TinyModel file_{[] {
    testing::TinyShape s;
    s.context = 1024;
    return s;
  }()};
  std::unique_ptr<lab::LoadedModel> model_;
};

TEST_F(Steady, TheSchedulerAlone) {
  EXPECT_EQ(allocations_of_steady_decode(nullptr, 1, false), 0);
  EXPECT_EQ(allocations_of_steady_decode(nullptr, 2, false), 0) << "planned ahead";
}

TEST_F(Steady, WithBothClasses) { EXPECT_EQ(allocations_of_steady_decode(nullptr, 1, true), 0); }

TEST_F(Steady, WithTextAndSinks) {
  ASSERT_TRUE(model_);
  EXPECT_EQ(allocations_of_steady_decode(model_->tokenizer, 1, false), 0);
  EXPECT_EQ(allocations_of_steady_decode(model_->tokenizer, 2, false), 0) << "planned ahead";
}

// Notes how many allocations there had been when tokens of the first of a request's choices came.
struct Gauge final : sched::ResponseSink {
  static constexpr int kFrom = 100, kTo = 500;
  explicit Gauge(int choices) : open(choices) {}
  long from = 0, to = 0;
  int tokens = 0, open;
  std::atomic<bool> ended{false};
  void push(sched::TokenEvent&& e) noexcept override {
    if (e.choice == 0) {
      tokens += e.has_token;
      if (tokens == kFrom) from = allocations;
      if (tokens == kTo) to = allocations;
    }
    if (e.finish == sched::FinishReason::kNone || --open > 0) return;
    ended = true;
    ended.notify_one();
  }
};

TEST_F(Steady, TheEngineWithAModel) {
  ASSERT_TRUE(model_);
  SteadyClock clock;
  auto executor = model_->make_executor();
  ASSERT_TRUE(executor.ok());
  engine::EngineOptions o;
  o.scheduler = model_->scheduler;
  engine::Engine engine(o, model_->tokenizer, std::move(*executor), &clock);
  // One request, so that all its choices begin together.
  auto gauge = std::make_shared<Gauge>(8);
  sched::Submission s = submission(gauge, 1);
  s.n = 8;
  ASSERT_TRUE(engine.submit(std::move(s)).ok());
  gauge->ended.wait(false);
  EXPECT_EQ(gauge->tokens, kOutput);
  EXPECT_EQ(gauge->to - gauge->from, 0);
}

}  // namespace
}  // namespace sluice
