#include "exec/warm_up.h"

#include <gtest/gtest.h>

namespace sluice::exec {
namespace {

constexpr kv::BlockId kBlock = 77;

TEST(WarmUp, APlansArraysGoTogether) {
  const sched::BatchPlan plan = WarmUp(kBlock, 16).prompt(3, 50);
  EXPECT_EQ(plan.num_sequences(), 4);
  EXPECT_EQ(plan.num_tokens(), 53);
  EXPECT_EQ(plan.query_begin, (std::vector<int32_t>{0, 1, 2, 3, 53}));
  EXPECT_EQ(plan.kv_len, (std::vector<int32_t>{1, 1, 1, 50}));
  EXPECT_EQ(plan.block_begin, (std::vector<int32_t>{0, 1, 2, 3, 7}));
  EXPECT_EQ(plan.block_ids, std::vector<int32_t>(7, kBlock));
  EXPECT_EQ(plan.positions.back(), 49);
  EXPECT_EQ(plan.sequence_of.back(), 3);
  ASSERT_EQ(plan.rows.size(), 4u);
  EXPECT_EQ(plan.rows.back().token_row, 52);
  EXPECT_EQ(WarmUp(kBlock, 16).decodes(5).num_tokens(), 5);
  EXPECT_GT(WarmUp(kBlock, 16).sampled().rows[0].params->temperature, 0);
}

TEST(WarmUp, SizesRiseToTheLargest) {
  EXPECT_TRUE(WarmUp::sizes(1).empty());
  EXPECT_EQ(WarmUp::sizes(2), std::vector<int>{2});
  EXPECT_EQ(WarmUp::sizes(40), (std::vector<int>{2, 16, 32, 40}));
  for (const int most : {256, 1000, 4096}) {
    const std::vector<int> sizes = WarmUp::sizes(most);
    EXPECT_EQ(sizes.back(), most);
    for (size_t i = 1; i < sizes.size(); ++i) {
      EXPECT_GT(sizes[i], sizes[i - 1]);
      EXPECT_LE(sizes[i] - sizes[i - 1], std::max(16, sizes[i] / 3)) << sizes[i];
    }
  }
}

}  // namespace
}  // namespace sluice::exec
