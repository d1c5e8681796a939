#include <gtest/gtest.h>

#include <string>
#include <vector>

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

int64_t bytes(const std::vector<MixedTensor>& tensors) {
  int64_t sum = 0;
  for (const MixedTensor& t : tensors) sum += t.rows * int64_t(row_bytes(*find_format(t.type), size_t(t.cols)));
  return sum;
}
// names outlives what is returned.
std::vector<MixedTensor> tensors_of(const char* mix, const MixedModel& m, const std::vector<std::string>& names, int64_t vocab, int64_t dim) {
  std::vector<MixedTensor> out;
  for (const std::string& n : names) {
    const int64_t rows = n.starts_with("blk") ? 1024 : vocab, cols = n.find("ffn_down") != std::string::npos ? 1024 : dim;
    out.push_back({n, rows, cols, mixed_type(*find_mix(mix), m, n, 2, cols).value()});
  }
  return out;
}

TEST(Mixes, WhatAnOddHeadSparesGoesToLayers) {
  const std::vector<std::string> names = {"token_embd.weight",   "blk.0.attn_q.weight",   "blk.0.attn_output.weight", "blk.0.ffn_gate.weight", "blk.0.ffn_up.weight", "blk.0.ffn_down.weight",
                                          "blk.1.attn_q.weight", "blk.1.ffn_gate.weight", "blk.1.ffn_down.weight",    "output.weight"};
  const MixedModel m = model(24);
  for (const char* mix : {"q4_k_m", "q4_k_s", "q3_k_m", "q3_k_s", "q2_k"})
    for (const int64_t vocab : {32, 400, 1024, 2000, 4000, 100000}) {
      const std::vector<MixedTensor> before = tensors_of(mix, m, names, vocab, 896);
      std::vector<MixedTensor> after = before;
      spend_spare(*find_mix(mix), m, after);
      EXPECT_LE(bytes(after), bytes(before)) << mix << vocab;
      EXPECT_EQ(after.back().type, kQ5_1) << mix;
      EXPECT_EQ(after[0].type, before[0].type) << mix;  // an embedding that is no head
      for (size_t i = 1; i + 1 < names.size(); ++i)
        EXPECT_GE(find_format(after[i].type)->block_bytes * find_format(before[i].type)->block_elements, find_format(before[i].type)->block_bytes * find_format(after[i].type)->block_elements) << names[i];
      if (vocab < 100000) continue;
      EXPECT_EQ(after[1].type, kQ8_0);
      EXPECT_EQ(after[3].type, kQ8_0);
      EXPECT_EQ(after[5].type, kQ6_K);
    }
  // Attention first: enough for its two of 4 bits, and no more.
  std::vector<MixedTensor> few = tensors_of("q3_k_s", m, names, 1300, 896);
  spend_spare(*find_mix("q3_k_s"), m, few);
  EXPECT_EQ(few[1].type, kQ5_0);
  EXPECT_EQ(few[6].type, kQ5_0);
  EXPECT_EQ(few[3].type, kQ4_0);
}

TEST(Mixes, OtherMixesAndHeadsSpareNothing) {
  const std::vector<std::string> names = {"token_embd.weight", "blk.0.attn_q.weight", "blk.0.ffn_down.weight", "output.weight"};
  const MixedModel m = model(24), tied = model(24, 1, false);
  const auto unchanged = [&](const char* mix, const MixedModel& of, const std::vector<std::string>& n, int64_t dim) {
    const std::vector<MixedTensor> before = tensors_of(mix, of, n, 100000, dim);
    std::vector<MixedTensor> after = before;
    spend_spare(*find_mix(mix), of, after);
    for (size_t i = 0; i < n.size(); ++i) EXPECT_EQ(after[i].type, before[i].type) << mix << " " << n[i];
  };
  for (const char* mix : {"q8_0", "q6_k", "q5_k_m", "q5_k_s", "q4_0", "q5_1", "iq4_nl", "iq4_xs"}) unchanged(mix, m, names, 896);
  for (const char* mix : {"q4_k_m", "q3_k_m", "q2_k"}) unchanged(mix, m, names, 1024);
  const std::vector<std::string> headless(names.begin(), names.end() - 1);
  std::vector<MixedTensor> t = tensors_of("q4_k_m", tied, headless, 100000, 896);
  spend_spare(*find_mix("q4_k_m"), tied, t);
  EXPECT_EQ(t[0].type, kQ5_1);  // the embedding is the head
  EXPECT_EQ(t[1].type, kQ8_0);
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
