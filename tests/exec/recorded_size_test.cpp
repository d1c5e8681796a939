#include "exec/recorded_size.h"

#include <gtest/gtest.h>

namespace sluice::exec {
namespace {

// A step of sequences with so many tokens, all of which draw.
sched::BatchPlan step(const std::vector<int>& tokens) {
  sched::BatchPlan plan;
  plan.clear();
  for (const int t : tokens) {
    for (int i = 0; i < t; ++i) {
      plan.token_ids.push_back(1);
      sched::OutputRow row;
      row.token_row = int32_t(plan.rows.size());
      plan.rows.push_back(row);
    }
    plan.query_begin.push_back(plan.num_tokens());
    plan.kv_len.push_back(t);
  }
  return plan;
}
RecordedSize size(const std::vector<int>& tokens) { return recorded_size(step(tokens), 64, 8); }
constexpr RecordedSize kNone{};

TEST(RecordedSize, IsOfStepsWhoseSequencesAreAlike) {
  EXPECT_EQ(size({1}), (RecordedSize{1, 1}));
  EXPECT_EQ(size({1, 1, 1}), (RecordedSize{4, 1}));
  EXPECT_EQ(size({5, 5, 5}), (RecordedSize{4, 5}));
  EXPECT_EQ(size({}), kNone);
}

// Wherever the odd one is, and whether or not tokens divide evenly.
TEST(RecordedSize, IsNoneWhereOneHasAnother) {
  for (const std::vector<int>& tokens : std::vector<std::vector<int>>{{1, 2}, {2, 1}, {1, 1, 2}, {1, 3}, {3, 1}, {1, 2, 3}, {2, 2, 3}, {1, 1, 1, 5}}) EXPECT_EQ(size(tokens), kNone);
}

TEST(RecordedSize, IsNoneBeyondItsBoundsOrWhereATokenDrawsNothing) {
  EXPECT_EQ(size({8, 8, 8}), (RecordedSize{4, 8}));
  EXPECT_EQ(size({9}), kNone);
  EXPECT_EQ(size(std::vector<int>(9, 8)), kNone);
  sched::BatchPlan plan = step({2, 2});
  plan.rows[1].samples = false;
  EXPECT_EQ(recorded_size(plan, 64, 8), kNone);
  plan.rows.erase(plan.rows.begin() + 1);
  EXPECT_EQ(recorded_size(plan, 64, 8), kNone);
}

}  // namespace
}  // namespace sluice::exec
