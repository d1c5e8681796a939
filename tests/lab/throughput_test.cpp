// bench throughput: lists of lengths, and every request through the engine to its full length.
#include "lab/bench_throughput.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <unistd.h>

namespace sluice::lab {
namespace {

std::string with_file(const std::string& text) {
  const std::string path = ::testing::TempDir() + "sluice_lengths_" + std::to_string(::getpid()) + ".json";
  std::ofstream(path) << text;
  return path;
}

TEST(Throughput, ReadsListsOfLengths) {
  const std::string path = with_file(R"({"a": {"prompt": [3, 4], "output": [5, 6]}, "bad": {"prompt": [1], "output": [0]}, "short": {"prompt": [1], "output": []}})");
  auto r = read_lengths(path + ":a");
  ASSERT_TRUE(r.ok()) << r.error().message;
  ASSERT_EQ(r->size(), 2u);
  EXPECT_EQ(r->at(1).prompt, 4);
  EXPECT_EQ(r->at(1).output, 6);
  for (const char* list : {"", ":b", ":bad", ":short"}) EXPECT_FALSE(read_lengths(path + list).ok()) << list;
  std::remove(path.c_str());
  EXPECT_FALSE(read_lengths("/nowhere.json").ok());
}

TEST(Throughput, PercentilesComeWithTheirMean) {
  const Percentiles p = percentiles_ms({0.004, 0.001, 0.002, 0.009});
  EXPECT_NEAR(p.p50, 4, 1e-9);
  EXPECT_NEAR(p.p99, 9, 1e-9);
  EXPECT_NEAR(p.mean, 4, 1e-9);
  EXPECT_EQ(percentiles_ms({}).mean, 0);
}

TEST(Throughput, EveryRequestRunsToItsLength) {
  LoadOptions o;
  o.random = "llama-tiny";
  o.weight_type = "q8_0";
  o.threads = 2;
  o.max_sequences = 6;
  o.kv_memory = "64MiB";
  auto model = load_model(o, nullptr);
  ASSERT_TRUE(model.ok()) << model.error().message;
  auto lengths = draw_lengths("uniform:3:40", "uniform:2:20", 15, 7);
  ASSERT_TRUE(lengths.ok());
  int64_t in = 0, out = 0;
  for (const RequestLengths& l : *lengths) in += l.prompt, out += l.output;
  auto r = bench_throughput(*model, *lengths, 7);
  ASSERT_TRUE(r.ok()) << r.error().message;
  EXPECT_EQ(r->failed, 0);
  EXPECT_EQ(r->prompt_tokens, in);
  EXPECT_EQ(r->output_tokens, out);
  EXPECT_GT(r->output_tok_s, 0);
  EXPECT_GE(r->ttft_ms.p99, r->ttft_ms.p50);
  EXPECT_GT(r->live_peak, 1);
  EXPECT_LE(r->live_peak, o.max_sequences);
  EXPECT_GT(r->live_mean, 0);
  EXPECT_LE(r->live_mean, r->live_peak);
  lengths->push_back({1 << 20, 1});
  EXPECT_FALSE(bench_throughput(*model, *lengths, 7).ok());
}

}  // namespace
}  // namespace sluice::lab
