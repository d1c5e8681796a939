// A request of random tokens, and whoever waits for what comes of it. For tests of the engine.
#pragma once
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "base/rng.h"
#include "sched/scheduler.h"

namespace sluice::testing {

class Waiter final : public sched::ResponseSink {
 public:
  explicit Waiter(int n) : choices_(size_t(n)), open_(n) {}
  struct Choice {
    std::vector<int32_t> tokens;
    std::vector<float> logprobs, prompt_logprobs;
    std::string text;
    sched::FinishReason finish = sched::FinishReason::kNone;
    Error error;
    int cached = 0;
  };
  void push(sched::TokenEvent&& e) noexcept override {
    std::lock_guard lock(mutex_);
    Choice& c = choices_[size_t(e.choice)];
    if (e.has_token && e.is_prompt) c.prompt_logprobs.push_back(e.sample.logprob);
    if (e.has_token && !e.is_prompt) {
      c.tokens.push_back(e.sample.token);
      c.logprobs.push_back(e.sample.logprob);
    }
    c.text += e.text;
    c.cached = e.cached_tokens;
    if (e.finish != sched::FinishReason::kNone) {
      c.finish = e.finish;
      c.error = e.error;
      --open_;
      done_.notify_all();
    }
  }
  std::vector<Choice>& wait() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(done_.wait_for(lock, std::chrono::seconds(120), [&] { return open_ == 0; })) << "the request never ended";
    return choices_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  std::vector<Choice> choices_;
  int open_;
};

inline sched::Submission request(int prompt_tokens, uint64_t seed, int max_tokens = 24, float temperature = 1.0f) {
  Rng rng(seed);
  sched::Submission s;
  for (int i = 0; i < prompt_tokens; ++i) s.prompt.push_back(int32_t(rng.below(256)));
  s.max_tokens = max_tokens;
  s.ignore_eos = true;
  s.sampling.temperature = temperature;
  s.sampling.seed = seed;
  s.sampling.num_logprobs = 0;
  return s;
}

}  // namespace sluice::testing
