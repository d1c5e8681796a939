// Steps that a device records and runs again - before the first request, where it warms up - against the same steps launched kernel by kernel:
// tokens and log-probabilities are bitwise the same.
#include <gtest/gtest.h>

#include <cstdlib>
#include <ostream>

#include "engine/engine.h"
#include "lab/loaded_model.h"
#include "tests/engine/waiter.h"

namespace sluice {
namespace {

using testing::request, testing::Waiter;

// Random models of real shapes, in types that have fast kernels.
struct Recorded {
  std::string shape, weights, cache;
  friend std::ostream& operator<<(std::ostream& out, const Recorded& r) { return out << r.shape << " " << r.weights << " " << r.cache; }
};
class RecordedSteps : public ::testing::TestWithParam<Recorded> {};

TEST_P(RecordedSteps, GiveWhatUnrecordedOnesGive) {
  const auto run = [](bool recorded) {
    lab::LoadOptions o;
    o.random = GetParam().shape;
    o.weight_type = GetParam().weights;
    o.kv_type = GetParam().cache;
    o.max_sequences = 2;
    o.context = 2048;
    o.kv_memory = "256MiB";
    o.no_graphs = !recorded;
    if (const char* device = std::getenv("SLUICE_TEST_DEVICE")) o.device = device;
    auto model = lab::load_model(o, nullptr);
    EXPECT_TRUE(model.ok()) << (model.ok() ? "" : model.error().message);
    SteadyClock clock;
    engine::EngineOptions options;
    options.scheduler = model->scheduler;
    auto executor = model->make_executor();
    EXPECT_TRUE(executor.ok());
    if (recorded) {
      EXPECT_TRUE((*executor)->warm_up().ok());
    }
    engine::Engine engine(options, model->tokenizer, std::move(*executor), &clock);
    std::vector<Waiter::Choice> out;
    const auto send = [&](int prompt, int tokens) {
      auto w = std::make_shared<Waiter>(1);
      sched::Submission s = request(prompt, uint64_t(prompt), tokens);
      s.sink = w;
      EXPECT_TRUE(engine.submit(std::move(s)).ok());
      return w;
    };
    // One at a time over lengths at which attention takes other shares, past a block's end, then two together.
    for (const int prompt : {5, 120, 250, 700}) out.push_back(send(prompt, 24)->wait()[0]);
    const auto one = send(40, 40), other = send(300, 30);
    out.push_back(one->wait()[0]), out.push_back(other->wait()[0]);
    return out;
  };
  const auto recorded = run(true), alone = run(false);
  for (size_t i = 0; i < alone.size(); ++i) {
    SCOPED_TRACE("request " + std::to_string(i));
    EXPECT_EQ(recorded[i].tokens, alone[i].tokens);
    EXPECT_EQ(recorded[i].logprobs, alone[i].logprobs);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, RecordedSteps, ::testing::ValuesIn([]() -> std::vector<Recorded> {
                           if (!std::getenv("SLUICE_TEST_DEVICE")) return {{"llama-135m", "q8_0", "f16"}};
                           return {{"llama-135m", "bf16", "f16"}, {"llama-135m", "f16", "int8"}, {"llama-1b", "bf16", "fp8"}, {"llama-1b", "fp8", "fp8"},
                                   {"llama-1b", "fp8", "f16"},    {"llama-1b", "f16", "f16"},    {"llama-1b", "q4_0", "f16"}};
                         }()));

}  // namespace
}  // namespace sluice
