#include "lab/simulate.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>

#include "lab/hardware.h"

namespace sluice::lab {
namespace {

// 8 billion parameters of two bytes, grouped heads: the cache of a token is 128 KB.
ModelSizes llama() {
  ModelSizes m;
  m.weight_bytes = 16'000'000'000;
  m.kv_bytes_per_token = 131072;
  m.layer_parameters = 7e9;
  m.head_parameters = 0.5e9;
  m.attention_width = 4096.0 * 32;
  return m;
}

SimulateOptions options(int sequences, int blocks = 20000) {
  SimulateOptions o;
  o.cost = cost_model(*find_hardware("h200", 1), llama());
  o.scheduler.total_blocks = blocks;
  o.scheduler.max_sequences = sequences;
  o.scheduler.max_step_tokens = 2048;
  o.scheduler.max_context = 1 << 20;
  o.scheduler.prefix_cache = false;
  return o;
}

std::vector<Arrival> drawn(const std::string& prompt, const std::string& output, int requests, double rate = 0) {
  WorkloadOptions w;
  w.prompt_tokens = prompt;
  w.output_tokens = output;
  w.requests = requests;
  w.rate = rate;
  return *plan_workload(w);
}

TEST(Simulate, OneRequestTakesWhatItsStepsTake) {
  const SimulateOptions o = options(4);
  const SimulateReport r = *simulate(o, {{1.5, 100, 11}});
  sched::StepShape prompt, token;
  prompt.add(100, 100, 1);
  token.add(1, 106, 1);  // the middle of ten
  EXPECT_EQ(r.ok, 1);
  EXPECT_EQ(r.steps, 11u);
  EXPECT_EQ(r.output_tokens, 11);
  EXPECT_NEAR(r.ttft_ms.p50 * 1000, o.cost(prompt), 2);
  EXPECT_NEAR(r.duration_s * 1e6, o.cost(prompt) + 10 * o.cost(token), 30);
  EXPECT_NEAR(r.itl_ms.p50 * 1000, o.cost(token), 0.02 * o.cost(token));
}

TEST(Simulate, IsTheSameEveryTime) {
  const auto arrivals = drawn("lognormal:5:1:1:2000", "lognormal:4:1:1:500", 500, 20);
  const SimulateReport a = *simulate(options(64), arrivals), b = *simulate(options(64), arrivals);
  EXPECT_EQ(a.duration_s, b.duration_s);
  EXPECT_EQ(a.steps, b.steps);
  EXPECT_EQ(a.ttft_ms.p99, b.ttft_ms.p99);
  EXPECT_EQ(a.ok, 500);
}

// Outputs from 20 to 2,000: a batch that waits for its longest member computes slots that are long done.
TEST(Simulate, ContinuousBatchesBeatStaticOnes) {
  const auto arrivals = drawn("64", "loguniform:20:2000", 1000);
  SimulateOptions o = options(64);
  const double continuous = simulate(o, arrivals)->output_tok_s;
  o.static_batches = true;
  const double kept = simulate(o, arrivals)->output_tok_s;
  o.keep_finished = false;
  const double dropped = simulate(o, arrivals)->output_tok_s;
  EXPECT_EQ(simulate(o, arrivals, [](size_t) { return false; })->output_tok_s, dropped);  // classes or none: a batch is as large
  EXPECT_GT(continuous, 2.5 * kept);
  EXPECT_GE(dropped, kept);
}

TEST(Simulate, PagedCacheWastesUnderFourPercentAndContiguousMost) {
  const auto arrivals = drawn("lognormal:4:1:10:2000", "lognormal:6:0.6:10:3000", 600);
  SimulateOptions o = options(128);
  const SimulateReport paged = *simulate(o, arrivals);
  EXPECT_LT(paged.kv_waste_pct, 4);
  o.reserve_tokens = 5000;
  const SimulateReport contiguous = *simulate(o, arrivals);
  EXPECT_GT(contiguous.kv_waste_pct, 50);
  EXPECT_GT(paged.output_tok_s, 1.2 * contiguous.output_tok_s);
}

TEST(Simulate, ABoundOnTimeKeepsGapsShortBesideLongPrompts) {
  std::vector<Arrival> arrivals;
  for (int i = 0; i < 64; ++i) arrivals.push_back({0.0, 50, 1200});
  for (int i = 0; i < 60; ++i) arrivals.push_back({1.0 + 0.2 * i, 8000, 4});
  std::sort(arrivals.begin(), arrivals.end(), [](const Arrival& a, const Arrival& b) { return a.at_s < b.at_s; });
  SimulateOptions o = options(128, 60000);
  o.scheduler.max_step_tokens = 8192;
  const SimulateReport whole = *simulate(o, arrivals);
  o.scheduler.step_us = 20000;
  const SimulateReport chunked = *simulate(o, arrivals);
  EXPECT_GT(whole.itl_ms.p99, 60);
  EXPECT_LT(chunked.itl_ms.p99, 25);
  EXPECT_LT(chunked.step_error_p90, 0.15);
  EXPECT_LT(chunked.ttft_ms.p50, 3 * whole.ttft_ms.p50);
}

TEST(Simulate, BatchClassGivesWayToInteractive) {
  const auto arrivals = drawn("200", "200", 800, 60);
  const auto half = [](size_t i) { return i % 2 == 1; };
  SimulateOptions o = options(64);
  const double mixed = simulate(o, arrivals, half)->tpot_ms.p50, alone = simulate(o, arrivals)->tpot_ms.p50;
  EXPECT_LT(mixed, alone);
}

// More batch work than the machine can do, for as long as the test lasts: chats find it in their way for a step, not for its backlog.
TEST(Simulate, ABacklogOfBatchWorkHoldsNoChatUp) {
  const auto arrivals = drawn("400", "200", 3000, 90);
  const auto mostly = [](size_t i) { return i % 10 != 0; };
  SimulateOptions o = options(64);
  const SimulateReport r = *simulate(o, arrivals, mostly);
  ASSERT_EQ(r.classes.size(), 2u);
  EXPECT_EQ(r.classes[0].ok, 300);
  EXPECT_EQ(r.classes[1].ok, 2700);
  EXPECT_GT(r.classes[1].ttft_ms.p50, 5'000);
  EXPECT_LT(r.classes[0].ttft_ms.p99, 500);
  EXPECT_NEAR(r.output_tok_s, r.classes[0].output_tok_s + r.classes[1].output_tok_s, 1e-6 * r.output_tok_s);
  EXPECT_TRUE(simulate(o, drawn("400", "200", 10, 90), [](size_t) { return true; })->classes.empty());
}

TEST(Simulate, RefusesWhatCanNeverFit) {
  SimulateOptions o = options(4, 10);
  EXPECT_EQ(simulate(o, {{0, 1000, 10}}).error().code, ErrorCode::kContextLength);
  o.reserve_tokens = 1000;
  EXPECT_FALSE(simulate(o, {{0, 10, 10}}).ok());
}

TEST(Workload, ReadsATraceAndNamesABadLine) {
  const std::string path = testing::TempDir() + "/trace.csv";
  std::ofstream(path) << "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.5,374,44\n2023-11-16 18:15:50.5,396,109\n";
  WorkloadOptions w;
  w.trace = path;
  w.trace_speed = 2;
  w.divide_lengths = 2;
  const auto arrivals = *plan_workload(w);
  ASSERT_EQ(arrivals.size(), 2u);
  EXPECT_EQ(arrivals[1].at_s, 2.0);
  EXPECT_EQ(arrivals[1].prompt_tokens, 198);
  std::ofstream(path, std::ios::app) << "2023-11-16 18:15:50.5,99999999999,109\n";
  EXPECT_NE(plan_workload(w).error().message.find("line 4"), std::string::npos);
}

TEST(Hardware, ReadsAFileAndRefusesNonsense) {
  const std::string path = testing::TempDir() + "/hardware.json";
  std::ofstream(path) << R"({"name": "mine", "bandwidth_gb_s": 100, "gflop_s": 1000, "overhead_us": 5})";
  const Hardware h = *find_hardware(path, 1);
  sched::StepShape one;
  one.add(1, 1, 1);
  EXPECT_NEAR(cost_model(h, llama())(one), 160000 + 5, 50);
  for (const char* bad : {"", "[]", "{}", R"({"bandwidth_gb_s": -1, "gflop_s": 1})", R"({"step_cost": [1, 2]})", R"({"step_cost": "x"})", R"({"name": 5, "bandwidth_gb_s": 1, "gflop_s": 1})",
                          R"({"source": [], "bandwidth_gb_s": 1, "gflop_s": 1})", R"({"accelerator": 1, "bandwidth_gb_s": 1, "gflop_s": 1})"}) {
    std::ofstream(path) << bad;
    EXPECT_FALSE(find_hardware(path, 1).ok()) << bad;
  }
  EXPECT_FALSE(find_hardware("no such", 1).ok());
}

}  // namespace
}  // namespace sluice::lab
