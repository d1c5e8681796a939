// DraftModel: a smaller model of the same vocabulary proposes. A draft is drawn with the target's sampling parameters and noise
// (sample/noise.h), so that where the two models' distributions are alike so are their tokens, at any temperature. Each pass
// takes all sequences that are drafted for; the first of a call computes what they know and the draft model does not yet, at most
// a step's tokens, so that prompts go in chunks. Passes run through an exec::Executor of its own, one after the other on the engine's thread.
#pragma once
#include <memory>
#include <unordered_map>

#include "base/clock.h"
#include "draft/draft_cache.h"
#include "draft/proposer.h"
#include "exec/executor.h"
#include "sched/step_cost.h"

namespace sluice::draft {

struct DraftModelOptions {
  int vocab = 0;            // the draft model's
  int target_vocab = 0;     // drafts are below this
  int max_context = 0;      // tokens the draft model can reach
  int max_step_tokens = 512;
  int max_sequences = 64;
  bool rejection = false;   // drafts come with what they were drawn from; vocab is then at most target_vocab
};

class DraftModel final : public Proposer {
 public:
  DraftModel(DraftModelOptions options, std::unique_ptr<exec::Executor> executor, const Clock* clock);

  Status propose(std::span<const DraftSlot> slots, std::span<const int> wanted, std::span<Proposal> proposals) override;
  void forget(uint64_t sequence) override;

  // Microseconds of a pass that draws for so many sequences, and of computing so many tokens before one; 0: not known yet.
  double pass_us(int sequences, int64_t cached_tokens) const;
  double catch_up_us(int tokens, int64_t length) const;
  // Tokens that a slot's sequence knows and the draft model has not computed, less the last; a guess for one it has not seen.
  int behind(const DraftSlot& slot) const;
  // Since the start: passes, tokens computed in them, microseconds they took.
  uint64_t passes() const { return passes_; }
  uint64_t tokens() const { return tokens_; }
  TimeUs took_us() const { return took_us_; }
  const DraftCache& cache() const { return cache_; }

 private:
  struct Active {
    const DraftSlot* slot;
    int wanted;
    Proposal* proposal;
    CachedText* text;
    sample::SamplingParams sampling;
    bool draws;                           // in the pass in hand
  };
  bool usable(const DraftSlot& slot);
  void gather(std::span<const DraftSlot> slots, std::span<const int> wanted, std::span<Proposal> proposals);
  Status pass();
  void add(Active& a, int count);
  Status run_plan();

  DraftModelOptions options_;
  std::unique_ptr<exec::Executor> executor_;
  const Clock* clock_;
  DraftCache cache_;
  sched::StepCost cost_;
  sched::BatchPlan plan_;
  sched::StepResult result_;
  std::vector<Active> active_;
  std::vector<int32_t> fed_;              // of one sequence, in hand
  struct Checked { int tokens = 0; bool usable = true; };
  std::unordered_map<uint64_t, Checked> checked_;  // whose tokens the draft model has
  uint64_t calls_ = 0, passes_ = 0, tokens_ = 0;
  TimeUs took_us_ = 0;
};

}  // namespace sluice::draft
