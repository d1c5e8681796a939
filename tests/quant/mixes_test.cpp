#include <gtest/gtest.h>

#include "quant/mixes.h"
#include "quant/weight_format.h"

namespace sluice::quant {
namespace {

using enum WeightType;

MixedModel model(int layers, int heads_per_kv = 1, bool has_output = true, bool calibrated = false) { return {layers, heads_per_kv, has_output, calibrated}; }
WeightType type(const char* mix, const MixedModel& m, const std::string& name, int64_t cols = 4096) { return mixed_type(*find_mix(mix), m, name, 2, cols).value(); }

// 32 layers: the first four, the last four, and every third between.
TEST(Mixes, MediumGivesEveryThirdLayerBetweenTheEndsMoreBits) {
  const MixedModel m = model(32);
  for (int i = 0; i < 32; ++i) {
    const bool more = i < 4 || i >= 28 || (i - 4) % 3 == 2;
    const std::string p = "blk." + std::to_string(i) + ".";
    EXPECT_EQ(type("q4_k_m", m, p + "attn_v.weight"), more ? kQ6_K : kQ4_K) << i;
    EXPECT_EQ(type("q4_k_m", m, p + "ffn_down.weight"), more ? kQ6_K : kQ4_K) << i;
    EXPECT_EQ(type("q5_k_m", m, p + "ffn_down.weight"), more ? kQ6_K : kQ5_K) << i;
    EXPECT_EQ(type("q4_k_s", m, p + "ffn_down.weight"), i < 4 ? kQ5_K : kQ4_K) << i;
    EXPECT_EQ(type("q3_k_m", m, p + "ffn_down.weight"), i < 2 ? kQ5_K : kQ4_K) << i;
    EXPECT_EQ(type("q4_k_m", m, p + "attn_q.weight"), kQ4_K) << i;
  }
}

TEST(Mixes, HeadsAndTiedEmbeddings) {
  for (const char* mix : {"q2_k", "q3_k_m", "q4_k_m", "q5_k_s", "q4_0", "iq4_xs"}) {
    EXPECT_EQ(type(mix, model(32), "output.weight"), kQ6_K) << mix;
    EXPECT_EQ(type(mix, model(32, 1, false), "token_embd.weight"), kQ6_K) << mix;
    EXPECT_EQ(type(mix, model(32), "token_embd.weight"), find_mix(mix)->base) << mix;
  }
  EXPECT_EQ(type("q8_0", model(32), "output.weight"), kQ8_0);
}

TEST(Mixes, FewBitsSpareValuesAndOutputs) {
  EXPECT_EQ(type("q2_k", model(32, 4), "blk.9.attn_v.weight"), kQ4_K);
  EXPECT_EQ(type("q2_k", model(32, 1), "blk.9.attn_v.weight"), kQ3_K);
  EXPECT_EQ(type("q2_k", model(32), "blk.9.attn_output.weight"), kQ3_K);
  EXPECT_EQ(type("q2_k", model(32), "blk.9.attn_k.weight"), kQ2_K);
  EXPECT_EQ(type("q4_0", model(32, 1, true, true), "blk.3.ffn_down.weight"), kQ4_1);
  EXPECT_EQ(type("q4_0", model(32, 1, true, false), "blk.3.ffn_down.weight"), kQ4_0);
}

TEST(Mixes, RowsThatAreNoWholeBlocksGetAnotherType) {
  EXPECT_EQ(fitting_type(kQ4_K, 896), kQ5_0);
  EXPECT_EQ(fitting_type(kQ5_K, 896), kQ5_1);
  EXPECT_EQ(fitting_type(kQ6_K, 896), kQ8_0);
  EXPECT_EQ(fitting_type(kQ3_K, 896), kQ4_0);
  EXPECT_EQ(fitting_type(kIQ4_XS, 896), kIQ4_NL);
  EXPECT_EQ(fitting_type(kQ4_K, 1536), kQ4_K);
  EXPECT_EQ(fitting_type(kQ4_K, 100), kF16);
  EXPECT_EQ(type("q4_k_m", model(24), "blk.0.attn_q.weight", 896), kQ5_0);
}

TEST(Mixes, NormsAndBiasesStayAsTheyAre) {
  const Mix& m = *find_mix("q4_k_m");
  EXPECT_FALSE(mixed_type(m, model(32), "blk.0.attn_norm.weight", 1, 4096));
  EXPECT_FALSE(mixed_type(m, model(32), "blk.0.attn_q.bias", 1, 4096));
  EXPECT_FALSE(mixed_type(m, model(32), "blk.0.odd_norm.weight", 2, 4096));
  EXPECT_EQ(find_mix("q4_k_x"), nullptr);
}

}  // namespace
}  // namespace sluice::quant
