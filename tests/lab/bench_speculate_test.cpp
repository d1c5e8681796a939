// The bench's own caches: one sequence at a time needs little, and gets it.
#include "lab/bench_speculate.h"

#include <gtest/gtest.h>

#include "base/rng.h"
#include "tests/lab/tiny_load.h"

namespace sluice::lab {
namespace {

TEST(BenchSpeculate, BlocksHoldThePromptItsReplyAndTheStepsThatAreMeasured) {
  for (uint64_t seed = 1; seed <= 1000; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng rng(seed);
    SpeculateBenchOptions o;
    o.drafts = {1 + int(rng.below(16)), 1 + int(rng.below(16))};
    o.max_tokens = 2 + int(rng.below(65535));
    const int64_t longest = 1 + int64_t(rng.below(1 << 20)), block_tokens = 16 * (1 + int64_t(rng.below(16)));
    const int64_t room = bench_blocks(longest, o, int(block_tokens)) * block_tokens, spare = 4 * block_tokens;
    EXPECT_GE(room, longest + o.max_tokens + spare);
    EXPECT_GE(room, 256 + 1 + std::max(o.drafts[0], o.drafts[1]) + spare);
    EXPECT_LT(room, std::max<int64_t>(longest + o.max_tokens, 256 + 17) + spare + block_tokens);
  }
}

TEST(BenchSpeculate, ItRunsInACacheOfWhatItNeeds) {
  const LoadOptions load = tiny_load();
  auto whole = load_model(load, nullptr);
  ASSERT_TRUE(whole.ok());
  SpeculateBenchOptions o;
  o.drafts = {2};
  o.max_tokens = 300;
  const std::vector<std::vector<int32_t>> prompts{{5, 6, 7, 8}, {9, 10, 11}};
  auto target = with_bench_cache(*whole, load, {}, prompts, o);
  ASSERT_TRUE(target.ok()) << target.error().message;
  EXPECT_EQ(target->scheduler.total_blocks, bench_blocks(4, o, 16));
  EXPECT_LT(target->scheduler.total_blocks, whole->scheduler.total_blocks);
  auto draft = load_draft(*target, load, "random:llama-tiny");
  ASSERT_TRUE(draft.ok()) << draft.error().message;
  EXPECT_EQ(draft->scheduler.total_blocks, target->scheduler.total_blocks);
  for (const float temperature : {0.0f, 0.8f}) {  // above 0 both rules are compared, with executors of their own
    o.temperature = temperature;
    auto r = bench_speculate(*target, &*draft, prompts, o);
    ASSERT_TRUE(r.ok()) << r.error().message;
    EXPECT_EQ(r->differing, 0);
    EXPECT_EQ(r->alpha_coupled > 0, temperature > 0);
  }
  o.max_tokens = 100'000;  // no more than there was
  EXPECT_EQ(with_bench_cache(*whole, load, {}, prompts, o)->scheduler.total_blocks, whole->scheduler.total_blocks);
}

TEST(BenchSpeculate, ACacheTooSmallForTheStepsIsAnError) {
  LoadOptions load = tiny_load();
  load.kv_memory = "64KiB";
  auto target = load_model(load, nullptr);
  ASSERT_TRUE(target.ok());
  ASSERT_LT(target->scheduler.max_context, 256);
  const auto r = bench_speculate(*target, nullptr, {{5, 6, 7}}, {});
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().field, "--context");
  EXPECT_NE(r.error().message.find("265 tokens"), std::string::npos) << r.error().message;
}

}  // namespace
}  // namespace sluice::lab
