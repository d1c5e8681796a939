#include "lab/planner.h"

#include <gtest/gtest.h>

namespace sluice::lab {
namespace {

TEST(Planner, AShapeStandsForAModel) {
  const ModelShape s = *parse_shape("layers=80,kv_heads=8,head_dim=128,params=70e9", 16, true);
  EXPECT_EQ(s.spec.num_layers, 80);
  EXPECT_EQ(s.weights.file_bytes, 140'000'000'000u);
  EXPECT_EQ(s.weights.packed_bytes + s.weights.mapped_bytes, s.weights.file_bytes);
  EXPECT_NEAR(s.spec.dim, 8192, 512);  // what such models have
  EXPECT_EQ(parse_shape("layers=80,kv_heads=8,head_dim=128,params=70e9,dim=8192,vocab=1000", 16, false)->weights.mapped_bytes, 0u);
}

TEST(Planner, AShapesKeysHaveLimits) {
  for (const char* wrong : {"", "layers=80", "layers=0,kv_heads=8,head_dim=128,params=7e9", "layers=80,kv_heads=8,head_dim=1000,params=7e9", "layers=8,kv_heads=8,head_dim=128,params=nan",
                            "layers=8,kv_heads=8,head_dim=128,params=1e99", "layers=8,kv_heads=8,head_dim=128,params=7e9,colour=3", "layers", "layers=", "layers=8x,kv_heads=8,head_dim=128,params=7e9"}) {
    const auto s = parse_shape(wrong, 16, true);
    ASSERT_FALSE(s.ok()) << wrong;
    EXPECT_EQ(s.error().field, "--shape");
    EXPECT_EQ(s.error().message.find('\n'), std::string::npos);
  }
}

PlanReport plan(const char* memory, int sequences = 0) {
  PlanRequest r;
  r.load.random = "llama-8b";
  r.load.context = 4096;
  r.memory = memory;
  r.bandwidth_gb_s = 1000;
  r.sequences = sequences;
  return *plan_deployment(r);
}

TEST(Planner, TermsAddUpAndSpeedFollowsFromBandwidth) {
  const PlanReport p = plan("64GiB");
  uint64_t sum = 0;
  for (const PlanTerm& t : p.terms) sum += t.bytes;
  EXPECT_EQ(sum, p.fixed_bytes);
  EXPECT_EQ(p.max_tokens, int64_t((p.memory_bytes - p.fixed_bytes) / (16 * p.kv_bytes_per_token)) * 16);
  EXPECT_EQ(p.max_sequences, p.max_tokens / 4096);
  ASSERT_FALSE(p.speeds.empty());
  const uint64_t weights = p.terms.front().bytes;
  EXPECT_EQ(p.terms.front().name, "weights");
  EXPECT_NEAR(p.speeds.front().tok_s, 1e12 / double(weights + 4096 * p.kv_bytes_per_token), 1e-6);
  EXPECT_EQ(p.speeds.back().sequences, p.max_sequences);
  EXPECT_FALSE(plan("8GiB").fits);
  EXPECT_FALSE(plan("64GiB", int(p.max_sequences) + 1).fits);
  EXPECT_TRUE(plan("64GiB", int(p.max_sequences)).fits);
}

}  // namespace
}  // namespace sluice::lab
