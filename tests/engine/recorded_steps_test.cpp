// Steps that a device records and runs again - before the first request, where it warms up - against the same steps launched kernel by kernel:
// tokens and log-probabilities are bitwise the same.
#include <gtest/gtest.h>

#include <cstdlib>
#include <memory>
#include <ostream>

#include "engine/engine.h"
#include "lab/loaded_model.h"
#include "lab/speculation.h"
#include "tests/engine/waiter.h"

namespace sluice {
namespace {

using testing::request, testing::Waiter;

// Random models of real shapes, in types that have fast kernels.
struct Recorded {
  std::string shape, weights, cache;
  friend std::ostream& operator<<(std::ostream& out, const Recorded& r) { return out << r.shape << " " << r.weights << " " << r.cache; }
};
class RecordedSteps : public ::testing::TestWithParam<Recorded> {
 protected:
  // An engine whose steps are recorded or not, and verify so many drafts of the same weights.
  void start(bool recorded, int drafts) {
    lab::LoadOptions o;
    o.random = GetParam().shape;
    o.weight_type = GetParam().weights;
    o.kv_type = GetParam().cache;
    o.max_sequences = 2;
    o.context = 2048;
    o.kv_memory = "256MiB";
    o.no_graphs = !recorded;
    if (const char* device = std::getenv("SLUICE_TEST_DEVICE")) o.device = device;
    lab::SpeculateOptions s;
    if (drafts > 0) s.mode = "draft", s.draft = "random:" + o.random, s.fixed = drafts;
    const auto needs = lab::draft_needs(o, s);
    ASSERT_TRUE(needs.ok());
    auto model = lab::load_model(o, nullptr, *needs);
    ASSERT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message);
    engine::EngineOptions options;
    options.scheduler = model->scheduler;
    if (drafts > 0) {
      auto speculator = lab::load_speculator(*model, o, s, &clock_);
      ASSERT_TRUE(speculator.ok()) << (speculator.ok() ? "" : speculator.error().message);
      options.speculator = *speculator;
    }
    auto executor = model->make_executor();
    ASSERT_TRUE(executor.ok());
    if (recorded) {
      ASSERT_TRUE((*executor)->warm_up().ok());
    }
    engine_ = std::make_unique<engine::Engine>(options, model->tokenizer, std::move(*executor), &clock_);
  }
  std::shared_ptr<Waiter> send(int prompt, int tokens) {
    auto w = std::make_shared<Waiter>(1);
    sched::Submission s = request(prompt, uint64_t(prompt), tokens);
    s.sink = w;
    EXPECT_TRUE(engine_->submit(std::move(s)).ok());
    return w;
  }
  static void expect_same(const std::vector<Waiter::Choice>& recorded, const std::vector<Waiter::Choice>& alone) {
    ASSERT_EQ(recorded.size(), alone.size());
    for (size_t i = 0; i < alone.size(); ++i) {
      SCOPED_TRACE("request " + std::to_string(i));
      EXPECT_EQ(recorded[i].tokens, alone[i].tokens);
      EXPECT_EQ(recorded[i].logprobs, alone[i].logprobs);
    }
  }
  SteadyClock clock_;
  std::unique_ptr<engine::Engine> engine_;
};

TEST_P(RecordedSteps, GiveWhatUnrecordedOnesGive) {
  std::vector<Waiter::Choice> out[2];
  for (const bool recorded : {true, false}) {
    ASSERT_NO_FATAL_FAILURE(start(recorded, 0));
    // One at a time over lengths at which attention takes other shares, past a block's end, then two together.
    for (const int prompt : {5, 120, 250, 700}) out[recorded].push_back(send(prompt, 24)->wait()[0]);
    const auto one = send(40, 40), other = send(300, 30);
    out[recorded].push_back(one->wait()[0]), out[recorded].push_back(other->wait()[0]);
  }
  expect_same(out[true], out[false]);
}

TEST_P(RecordedSteps, VerifyWhatUnrecordedOnesVerify) {
  std::vector<Waiter::Choice> out[2];
  for (const bool recorded : {true, false}) {
    ASSERT_NO_FATAL_FAILURE(start(recorded, 3));
    for (const int prompt : {5, 250}) out[recorded].push_back(send(prompt, 40)->wait()[0]);
  }
  expect_same(out[true], out[false]);
}

INSTANTIATE_TEST_SUITE_P(Types, RecordedSteps, ::testing::ValuesIn([]() -> std::vector<Recorded> {
                           if (!std::getenv("SLUICE_TEST_DEVICE")) return {{"llama-135m", "q8_0", "f16"}};
                           return {{"llama-135m", "bf16", "f16"}, {"llama-135m", "f16", "int8"}, {"llama-1b", "bf16", "fp8"}, {"llama-1b", "fp8", "fp8"},
                                   {"llama-1b", "fp8", "f16"},    {"llama-1b", "f16", "f16"},    {"llama-1b", "q4_0", "f16"}};
                         }()));

}  // namespace
}  // namespace sluice
