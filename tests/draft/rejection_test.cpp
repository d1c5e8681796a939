// Verification by rejection through the engine: texts have the target's distribution, whatever is drafted. A tiny model's texts of three
// tokens, of as many seeds with drafts as without, by a two-sample chi-square test. (sample/accept_test.cpp tests the rule itself.)
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>

#include "engine/engine.h"
#include "lab/speculation.h"
#include "tests/engine/tiny_model.h"

namespace sluice {
namespace {

const int kTexts = std::getenv("SLUICE_SEEDS") ? 2'000 : 12'000;
using Text = std::vector<int32_t>;

class Texts final : public sched::ResponseSink {
 public:
  void push(sched::TokenEvent&& e) noexcept override {
    if (e.has_token && !e.is_prompt) text.push_back(e.sample.token);
    drafted += e.drafted, accepted += e.accepted;
  }
  Text text;
  int drafted = 0, accepted = 0;
};

struct Outcome {
  std::map<Text, int> counts;
  int drafted = 0, accepted = 0;
  uint64_t passes = 0;  // of the draft model
};

Outcome run(const testing::TinyModel& target, const char* mode, const testing::TinyModel* draft, float temperature, int num_logprobs = -1) {
  lab::LoadOptions load;
  load.model = target.path();
  load.threads = 1;
  load.kv_memory = "16MiB";
  load.max_sequences = 32;
  lab::SpeculateOptions s;
  s.mode = mode;
  s.fixed = 2;
  s.verify = "rejection";
  if (draft) s.draft = draft->path();
  auto model = lab::load_model(load, nullptr);
  EXPECT_TRUE(lab::set_verification(s, *model).ok());
  SteadyClock clock;
  engine::EngineOptions options;
  options.scheduler = model->scheduler;
  options.scheduler.max_step_tokens = 100;  // more prompts than that come at once: some are cut
  options.max_queue = size_t(kTexts);
  options.speculator = *lab::load_speculator(*model, load, s, &clock);
  engine::Engine engine(options, model->tokenizer, std::move(*model->make_executor()), &clock);
  std::vector<std::shared_ptr<Texts>> sinks;
  for (int i = 0; i < kTexts; ++i) {
    sched::Submission one;
    one.prompt = {65, 66, 67, 65, 66, 67, 65, 66};  // lookups have something to say
    one.max_tokens = 4;                             // the fourth gives drafts of the third room
    one.ignore_eos = true;
    one.sampling.seed = uint64_t(i) + (*mode == 'o' ? 1'000'000 : 0);  // without drafts other seeds: two samples
    one.sampling.temperature = temperature;
    one.sampling.top_k = 5;
    one.sampling.num_logprobs = num_logprobs;
    one.sampling.logit_bias = {{67, 3.0f}};
    one.sink = sinks.emplace_back(std::make_shared<Texts>());
    EXPECT_TRUE(engine.submit(std::move(one)).ok());
  }
  while (!engine.idle()) std::this_thread::yield();
  Outcome out;
  if (options.speculator) out.passes = options.speculator->counters().passes;
  for (const auto& t : sinks) {
    EXPECT_EQ(t->text.size(), 4u);
    ++out.counts[Text(t->text.begin(), t->text.begin() + 3)];
    out.drafted += t->drafted, out.accepted += t->accepted;
  }
  return out;
}

// Upper tail by Wilson and Hilferty. Rare texts of both are taken together.
double p_value(const Outcome& a, const Outcome& b) {
  std::map<Text, std::pair<int, int>> cells;
  for (const auto& [text, n] : a.counts) cells[text].first = n;
  for (const auto& [text, n] : b.counts) cells[text].second = n;
  double chi = 0;
  int used = 0, rest_a = 0, rest_b = 0;
  const auto add = [&](int x, int y) { chi += double(x - y) * (x - y) / (x + y), ++used; };
  for (const auto& [text, n] : cells) {
    if (n.first + n.second >= 20) add(n.first, n.second);
    else rest_a += n.first, rest_b += n.second;
  }
  if (rest_a + rest_b >= 20) add(rest_a, rest_b);
  const double freedom = used - 1, z = (std::cbrt(chi / freedom) - (1 - 2 / (9 * freedom))) / std::sqrt(2 / (9 * freedom));
  std::printf("%d cells, ", used);
  return 0.5 * std::erfc(z / std::sqrt(2.0));
}

TEST(Rejection, TextsHaveTheTargetsDistribution) {
  const testing::TinyModel target({}, 1), other({.layers = 1}, 2);
  for (const float temperature : {0.7f, 1.5f}) {
    const Outcome plain = run(target, "off", nullptr, temperature);
    EXPECT_GT(plain.counts.size(), 20u);
    struct Case { const char *name, *mode; const testing::TinyModel* draft; };
    for (const Case& c : {Case{"lookups", "ngram", nullptr}, {"the target itself", "draft", &target}, {"another model", "draft", &other}}) {
      const Outcome with = run(target, c.mode, c.draft, temperature);
      const double p = p_value(plain, with);
      std::printf("temperature %.1f, %s: %d drafted, %d accepted, p = %.3f\n", double(temperature), c.name, with.drafted, with.accepted, p);
      EXPECT_GT(p, 1e-4) << c.name;
      EXPECT_GT(with.drafted, kTexts / 4) << c.name;
      if (c.draft == &target) {
        EXPECT_GT(with.accepted, 99 * with.drafted / 100);
      }
    }
  }
}

// Where nothing is left to chance there is nothing to replace.
TEST(Rejection, GreedyTextsAreThoseWithoutDrafts) {
  const testing::TinyModel target({}, 1), other({.layers = 1}, 2);
  const Outcome plain = run(target, "off", nullptr, 0);
  EXPECT_EQ(plain.counts.size(), 1u);
  EXPECT_EQ(run(target, "draft", &other, 0).counts, plain.counts);
  EXPECT_EQ(run(target, "ngram", nullptr, 0).counts, plain.counts);
}

// Their tokens' log-probabilities are of what the target draws: nothing is drafted for them, nor computed by the draft model in vain.
TEST(Rejection, LeavesRequestsForLogProbabilitiesAlone) {
  const testing::TinyModel target({}, 1);
  const Outcome with = run(target, "draft", &target, 0.7f, 0);
  EXPECT_EQ(with.drafted, 0);
  EXPECT_EQ(with.passes, 0u);
}

TEST(Rejection, IsRefusedByName) {
  lab::SpeculateOptions s;
  s.verify = "hope";
  EXPECT_NE(lab::check_speculation(s).error().message.find("hope"), std::string::npos);
}

}  // namespace
}  // namespace sluice
