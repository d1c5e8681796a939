#include "lab/verify_cost.h"

#include <algorithm>

#include "base/clock.h"
#include "base/rng.h"
#include "sample/rejection.h"
#include "sample/sampler.h"

namespace sluice::lab {
namespace {

// One sequence in blocks from the first on.
class OneSequence {
 public:
  OneSequence(const LoadedModel& m, std::unique_ptr<exec::DeviceExecutor> executor) : executor_(std::move(executor)) {
    plan_.block_tokens = m.device.block_tokens;
    params_.temperature = 0;
  }
  // Computes tokens from `begin` on; the last `rows` of them draw (or, with targets, score: the logits stay as they are).
  Status compute(std::span<const int32_t> tokens, int begin, int rows, bool scores) {
    plan_.clear();
    const int count = int(tokens.size());
    for (int i = 0; i < count; ++i) {
      plan_.token_ids.push_back(tokens[size_t(i)]);
      plan_.positions.push_back(begin + i);
      plan_.sequence_of.push_back(0);
    }
    plan_.query_begin.push_back(count);
    plan_.kv_len.push_back(begin + count);
    plan_.draft_len.push_back(0);
    for (int b = 0; b < (begin + count + plan_.block_tokens - 1) / plan_.block_tokens; ++b) plan_.block_ids.push_back(b);
    plan_.block_begin.push_back(int32_t(plan_.block_ids.size()));
    for (int i = count - rows; i < count; ++i) {
      sched::OutputRow r;
      r.token_row = i;
      r.params = &params_;
      r.position = begin + i + 1;
      r.samples = !scores;
      if (scores) r.target = 0;
      plan_.rows.push_back(r);
    }
    SLUICE_TRY(executor_->submit(plan_));
    return executor_->collect(result_);
  }
  exec::DeviceExecutor& executor() { return *executor_; }

 private:
  std::unique_ptr<exec::DeviceExecutor> executor_;
  sched::BatchPlan plan_;
  sched::StepResult result_;
  sample::SamplingParams params_;
};

}  // namespace

Result<std::vector<double>> step_ms_by_rows(const LoadedModel& m, std::span<const int> rows, int context, int repeats) {
  SLUICE_ASSIGN(auto executor, m.make_executor());
  OneSequence sequence(m, std::move(executor));
  if (keys_in_groups(m.device.kv_type.keys)) context -= context % kKeyGroup;  // what is written again are whole groups
  Rng rng(3);
  std::vector<int32_t> tokens(static_cast<size_t>(context));
  for (int32_t& t : tokens) t = int32_t(rng.below(uint32_t(m.scheduler.vocab)));
  for (int at = 0; at < context; at += m.device.max_step_tokens)
    SLUICE_TRY(sequence.compute(std::span(tokens).subspan(size_t(at), size_t(std::min(m.device.max_step_tokens, context - at))), at, 0, false));
  std::vector<std::vector<double>> times(rows.size());
  const SteadyClock clock;
  for (int r = -1; r < repeats; ++r)  // the first warms up
    for (size_t i = 0; i < rows.size(); ++i) {
      const TimeUs begin = clock.now_us();
      SLUICE_TRY(sequence.compute(std::span(tokens).first(size_t(rows[i])), context, rows[i], false));
      if (r >= 0) times[i].push_back(double(clock.now_us() - begin) * 1e-3);
    }
  std::vector<double> out;
  for (auto& t : times) {
    std::nth_element(t.begin(), t.begin() + std::ptrdiff_t(t.size() / 2), t.end());
    out.push_back(t[t.size() / 2]);
  }
  return out;
}

Result<RuleAcceptance> compare_rules(const LoadedModel& target, const LoadedModel& draft, std::span<const int32_t> text, int first, const sample::SamplingParams& params) {
  constexpr int kRows = 32;
  SLUICE_ASSIGN(auto target_executor, target.make_executor());
  SLUICE_ASSIGN(auto draft_executor, draft.make_executor());
  OneSequence models[] = {{target, std::move(target_executor)}, {draft, std::move(draft_executor)}};
  const size_t vocab = size_t(std::min(target.scheduler.vocab, draft.scheduler.vocab));
  RuleAcceptance out;
  for (int at = 0; at + 1 < int(text.size()); at += kRows) {
    const auto part = text.subspan(size_t(at), size_t(std::min(kRows, int(text.size()) - at)));
    for (OneSequence& m : models) SLUICE_TRY(m.compute(part, at, int(part.size()), true));
    for (int i = std::max(0, first - 1 - at); i < int(part.size()); ++i) {
      std::vector<float> p[2];
      int32_t drawn[2];
      const sample::SampleRow row = sample::make_row(params, at + i + 1);
      for (int m = 0; m < 2; ++m) {
        p[m].resize(size_t(m == 0 ? target.scheduler.vocab : draft.scheduler.vocab));
        SLUICE_TRY(models[m].executor().read_logits(i, p[m].data()));
        p[m].resize(vocab);
        std::vector<float> copy = p[m];
        drawn[m] = sample::sample_row(copy, row, {}, nullptr).token;
        sample::chain_probabilities(p[m], row, {});
      }
      out.coupled += drawn[0] == drawn[1];
      out.rejection += sample::rejection_acceptance(p[0], p[1]);
      ++out.places;
    }
  }
  if (out.places > 0) out.coupled /= out.places, out.rejection /= out.places;
  return out;
}

}  // namespace sluice::lab
