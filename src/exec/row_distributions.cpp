#include "exec/row_distributions.h"

#include <algorithm>

#include "sample/rejection.h"
#include "sample/sampler.h"

namespace sluice::exec {

bool RowDistributions::wanted(const sched::BatchPlan& plan) {
  return std::any_of(plan.rows.begin(), plan.rows.end(), [](const sched::OutputRow& r) { return r.verifies >= 0 || r.distribution; });
}

void RowDistributions::read(std::span<const sched::OutputRow> rows, const kernels::SampleArgs& a) {
  kept_.resize(std::max(kept_.size(), rows.size()));
  for (size_t i = 0; i < rows.size(); ++i) {
    if (rows[i].verifies < 0 && !rows[i].distribution) continue;
    std::vector<float>& p = rows[i].distribution ? *rows[i].distribution : kept_[i];
    const float* logits = a.logits + i * size_t(a.vocab);
    p.assign(logits, logits + a.vocab);
    changes_.assign(a.changes + a.rows[i].changes_begin, a.changes + a.rows[i].changes_end);
    sample::chain_probabilities(p, a.rows[i], changes_);
  }
}

void RowDistributions::decide(std::span<const sched::OutputRow> rows, const kernels::SampleArgs& a) const {
  for (size_t i = 0; i < rows.size(); ++i) {
    const sched::OutputRow& r = rows[i];
    if (r.verifies < 0) continue;
    const std::span<const float> p = r.distribution ? *r.distribution : kept_[i];
    a.results[i].token = r.proposed ? sample::accept_or_replace(p, {r.proposed, p.size()}, r.verifies, *r.params, r.position).token
                                    : sample::accept_or_replace(p, r.verifies, *r.params, r.position).token;
  }
}

}  // namespace sluice::exec
