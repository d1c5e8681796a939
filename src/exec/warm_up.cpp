#include "exec/warm_up.h"

#include <algorithm>

namespace sluice::exec {
namespace {

sample::SamplingParams greedy() {
  sample::SamplingParams p;
  p.temperature = 0;
  return p;
}
sample::SamplingParams chain() {
  sample::SamplingParams p;
  p.temperature = 1, p.top_k = 40, p.top_p = 0.9f, p.min_p = 0.01f, p.num_logprobs = 1;
  return p;
}
const sample::SamplingParams kGreedy = greedy(), kChain = chain();

}  // namespace

void WarmUp::add(sched::BatchPlan& plan, int tokens, const sample::SamplingParams& params) const {
  const int s = plan.num_sequences();
  for (int i = 0; i < tokens; ++i) {
    plan.token_ids.push_back(0);
    plan.positions.push_back(i);
    plan.sequence_of.push_back(s);
  }
  plan.query_begin.push_back(plan.num_tokens());
  plan.kv_len.push_back(tokens);
  plan.draft_len.push_back(0);
  plan.block_ids.insert(plan.block_ids.end(), size_t((tokens + block_tokens_ - 1) / block_tokens_), block_);
  plan.block_begin.push_back(int32_t(plan.block_ids.size()));
  sched::OutputRow row;
  row.token_row = plan.num_tokens() - 1;
  row.sequence = s;
  row.params = &params;
  row.position = tokens;
  row.prompt_tokens = tokens;
  plan.rows.push_back(row);
}

sched::BatchPlan WarmUp::decodes(int sequences) const {
  sched::BatchPlan plan;
  plan.clear();
  plan.block_tokens = block_tokens_;
  for (int i = 0; i < sequences; ++i) add(plan, 1, kGreedy);
  return plan;
}

sched::BatchPlan WarmUp::prompt(int sequences, int tokens) const {
  sched::BatchPlan plan = decodes(sequences);
  add(plan, tokens, kGreedy);
  return plan;
}

sched::BatchPlan WarmUp::sampled() const {
  sched::BatchPlan plan = decodes(0);
  add(plan, 1, kChain);
  return plan;
}

std::vector<int> WarmUp::sizes(int most) {
  std::vector<int> sizes;
  for (int n = 2; n < most; n += n < 16 ? 16 - n : n < 256 ? 16 : n < 512 ? 128 : n < 2048 ? 256 : 512) sizes.push_back(n);
  if (most >= 2) sizes.push_back(most);
  return sizes;
}

}  // namespace sluice::exec
