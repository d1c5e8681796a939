// A plan's arrays as kernels find them: padded, with rows and changes in place.
#include "exec/plan_memory.h"

#include <gtest/gtest.h>

#include <cmath>

namespace sluice::exec {
namespace {

// Two sequences that decode: lengths 5 and 17, blocks of 16.
struct Decode {
  sample::SamplingParams greedy, biased;
  std::vector<int32_t> history{1, 2};
  sched::BatchPlan plan;
  Decode() {
    greedy.temperature = 0;
    biased.logit_bias = {{7, 2.5f}, {3, -1.0f}};
    plan.clear();
    plan.step = 12;
    plan.token_ids = {9, -1};
    plan.positions = {4, 16};
    plan.sequence_of = {0, 1};
    plan.query_begin = {0, 1, 2};
    plan.kv_len = {5, 17};
    plan.block_begin = {0, 1, 3};
    plan.block_ids = {30, 31, 32};
    for (int s = 0; s < 2; ++s) {
      sched::OutputRow r;
      r.token_row = r.sequence = s;
      r.params = s ? &biased : &greedy;
      r.history = history;
      r.position = 5 + 12 * s;
      plan.rows.push_back(r);
    }
  }
};

TEST(PlanMemory, PadsWithSequencesOfOneToken) {
  Decode d;
  PlanMemory memory(*kernels::reference_kernels());
  ASSERT_TRUE(memory.ok());
  ASSERT_TRUE(memory.fill(d.plan, 4, 99, 50));
  const PlanView& v = memory.view();
  const auto list = [](const int32_t* p, int n) { return std::vector<int32_t>(p, p + n); };
  EXPECT_EQ(v.batch.num_tokens, 4);
  EXPECT_EQ(v.batch.num_sequences, 4);
  EXPECT_EQ(v.num_rows, 4);
  EXPECT_EQ(list(v.token_ids, 4), (std::vector<int32_t>{9, -1, 0, 0}));
  EXPECT_EQ(list(v.batch.positions, 4), (std::vector<int32_t>{4, 16, 0, 0}));
  EXPECT_EQ(list(v.batch.sequence_of, 4), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(list(v.batch.query_begin, 5), (std::vector<int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(list(v.batch.kv_len, 4), (std::vector<int32_t>{5, 17, 1, 1}));
  EXPECT_EQ(list(v.batch.block_begin, 5), (std::vector<int32_t>{0, 1, 3, 4, 5}));
  EXPECT_EQ(list(v.batch.block_ids, 5), (std::vector<int32_t>{30, 31, 32, 99, 99}));
  EXPECT_EQ(list(v.token_rows, 4), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(v.rows[0].inverse_temperature, 0);
  EXPECT_EQ(v.rows[1].inverse_temperature, 1);
  EXPECT_EQ(v.rows[1].position, 17u);
  EXPECT_EQ(v.rows[3].inverse_temperature, 0);
  ASSERT_EQ(v.rows[1].changes_end - v.rows[1].changes_begin, 2);
  EXPECT_EQ(v.rows[0].changes_end, v.rows[0].changes_begin);
  EXPECT_EQ(v.changes[v.rows[1].changes_begin].token, 7);
  EXPECT_EQ(v.changes[v.rows[1].changes_begin].add, 2.5f);
  EXPECT_NE(memory.describe().find("step 12"), std::string::npos);
  EXPECT_NE(memory.describe().find("1/17"), std::string::npos);
}

// Sequences that verify: what stands for others has as many tokens.
TEST(PlanMemory, PadsWithSequencesOfAsManyTokens) {
  Decode d;
  sched::BatchPlan& p = d.plan;
  p.token_ids = {9, 8, 7, -1, 5, 4};
  p.positions = {4, 5, 6, 16, 17, 18};
  p.sequence_of = {0, 0, 0, 1, 1, 1};
  p.query_begin = {0, 3, 6};
  p.kv_len = {7, 19};
  const std::vector<sched::OutputRow> rows = p.rows;
  p.rows.clear();
  for (int i = 0; i < 6; ++i) {
    p.rows.push_back(rows[size_t(i / 3)]);
    p.rows.back().token_row = i;
  }
  PlanMemory memory(*kernels::reference_kernels());
  ASSERT_TRUE(memory.fill(p, 4, 99, 50));
  const PlanView& v = memory.view();
  const auto list = [](const int32_t* at, int n) { return std::vector<int32_t>(at, at + n); };
  EXPECT_EQ(v.batch.num_tokens, 12);
  EXPECT_EQ(v.num_rows, 12);
  EXPECT_EQ(list(v.batch.positions, 12), (std::vector<int32_t>{4, 5, 6, 16, 17, 18, 0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(list(v.batch.sequence_of, 12), (std::vector<int32_t>{0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3}));
  EXPECT_EQ(list(v.batch.query_begin, 5), (std::vector<int32_t>{0, 3, 6, 9, 12}));
  EXPECT_EQ(list(v.batch.kv_len, 4), (std::vector<int32_t>{7, 19, 3, 3}));
  EXPECT_EQ(list(v.batch.block_begin, 5), (std::vector<int32_t>{0, 1, 3, 4, 5}));
  EXPECT_EQ(list(v.batch.block_ids, 5), (std::vector<int32_t>{30, 31, 32, 99, 99}));
  EXPECT_EQ(list(v.token_rows, 12), (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
}

// What a recording read must be found there by the next plan of as many sequences, whatever its lengths and changes.
TEST(PlanMemory, PlacesDependOnTheNumberOfSequencesAlone) {
  Decode a, b;
  b.plan.kv_len = {150, 17};
  b.plan.block_begin = {0, 10, 12};
  b.plan.block_ids.assign(12, 40);
  b.plan.rows[1].params = &b.greedy;
  PlanMemory memory(*kernels::reference_kernels());
  ASSERT_TRUE(memory.fill(a.plan, 4, 99, 50));
  const PlanView first = memory.view();
  const void* base = memory.base();
  ASSERT_TRUE(memory.fill(b.plan, 4, 99, 50));
  const PlanView& second = memory.view();
  EXPECT_EQ(base, memory.base());
  EXPECT_EQ(first.token_ids, second.token_ids);
  EXPECT_EQ(first.batch.block_ids, second.batch.block_ids);
  EXPECT_EQ(first.batch.kv_len, second.batch.kv_len);
  EXPECT_EQ(first.token_rows, second.token_rows);
  EXPECT_EQ(first.rows, second.rows);
  EXPECT_EQ(first.changes, second.changes);
}

TEST(PlanMemory, GrowsWithThePlan) {
  Decode d;
  PlanMemory memory(*kernels::reference_kernels());
  d.plan.kv_len[1] = 16 * 300000;
  d.plan.block_begin[2] = 300001;
  d.plan.block_ids.assign(300001, 5);
  ASSERT_TRUE(memory.fill(d.plan, 2, 99, 50));
  EXPECT_EQ(memory.view().batch.block_ids[300000], 5);
}

}  // namespace
}  // namespace sluice::exec
