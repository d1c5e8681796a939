// OracleExecutor: runs a draft model's steps, and says something else than they do: the token that is sure to come, with a given probability, else
// another. So what drafts cost is real, and how good they are is chosen. For benchmarks, whose requests make one token sure (sure_token).
#pragma once
#include <memory>

#include "base/rng.h"
#include "exec/executor.h"
#include "sample/sampling_params.h"

namespace sluice::lab {

// Of every vocabulary, and no end of a text in those of random weights.
constexpr int32_t kSureToken = 300;
inline void make_sure(sample::SamplingParams& params) { params.logit_bias = {{kSureToken, 100.0f}}; }

class OracleExecutor final : public exec::Executor {
 public:
  OracleExecutor(std::unique_ptr<exec::Executor> runs, double right) : runs_(std::move(runs)), right_(right), rng_(1) {}

  Status submit(const sched::BatchPlan& plan) override { return runs_->submit(plan); }
  Status collect(sched::StepResult& result) override {
    SLUICE_TRY(runs_->collect(result));
    for (sample::SampledToken& t : result.rows) t.token = rng_.uniform() < right_ ? kSureToken : kSureToken + 1;
    return {};
  }
  std::string describe_in_flight() const override { return runs_->describe_in_flight(); }
  int depth() const override { return runs_->depth(); }
  int total_blocks() const override { return runs_->total_blocks(); }
  int block_tokens() const override { return runs_->block_tokens(); }
  exec::KvBytes kv_bytes() const override { return runs_->kv_bytes(); }

 private:
  std::unique_ptr<exec::Executor> runs_;
  double right_;
  Rng rng_;
};

}  // namespace sluice::lab
