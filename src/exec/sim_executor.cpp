#include "exec/sim_executor.h"

#include <algorithm>

namespace sluice::exec {

sched::StepShape shape_of(const sched::BatchPlan& plan) {
  sched::StepShape shape;
  for (int s = 0; s < plan.num_sequences(); ++s) shape.add(plan.query_begin[size_t(s) + 1] - plan.query_begin[size_t(s)], plan.kv_len[size_t(s)], 0);
  shape.rows = int(plan.rows.size());
  return shape;
}

Status SimExecutor::submit(const sched::BatchPlan& plan) {
  sched::StepShape shape = shape_of(plan);
  shape.tokens += padding_.tokens;
  shape.rows += padding_.rows;
  shape.cached_tokens += padding_.cached_tokens;
  shape.pairs += padding_.pairs;
  took_us_ = std::max<TimeUs>(1, TimeUs(cost_(shape)));
  rows_ = plan.rows.size();
  return {};
}

Status SimExecutor::collect(sched::StepResult& result) {
  result.rows.resize(rows_);
  for (sample::SampledToken& t : result.rows) t.token = 1;
  return {};
}

}  // namespace sluice::exec
