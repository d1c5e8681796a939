// Speculator: what an engine that speculates asks before every plan and tells after every commit. It owns the proposers, what has
// been measured of them, and the control over them.
// Lookups cost nothing to speak of, so they propose for every sequence, verified or not, and what comes shows how good they are.
// The draft model is asked only where it should pay; where it does not, it is tried now and then within a share of the time
// (kProbeShare), so that it comes back when texts or load change.
// Threads: the engine's; counters() any.
#pragma once
#include <atomic>
#include <memory>
#include <unordered_map>

#include "draft/acceptance.h"
#include "draft/control.h"
#include "draft/draft_model.h"
#include "draft/ngram.h"
#include "draft/suffix.h"

namespace sluice::draft {

struct SpeculatorOptions {
  bool lookups = true;        // n-gram and, with suffix, finished requests of the same client
  bool suffix = true;
  int max_drafts = 8;         // of a sequence in a step
  int fixed = -1;             // at least 0: so many, always, and nothing is decided (benchmarks, tests)
};

// Drafts by source, class and place in the draft: verified up to the first rejection, and of them accepted.
struct DraftCounters {
  using Cells = std::array<std::array<std::array<std::atomic<uint64_t>, sched::kMaxDrafts>, 2>, kNumSources>;
  Cells tried{}, accepted{};
  std::array<std::array<std::atomic<uint64_t>, 2>, kNumSources> drafted{};  // in all, those behind a rejection too
  std::atomic<uint64_t> passes{0}, pass_tokens{0}, pass_us{0};              // of the draft model
};

// What the scheduler was given: an input of it, for a recording.
struct Given {
  size_t slot = 0;
  bool waits = false;
  std::vector<TokenId> tokens;
};

class Speculator {
 public:
  // model: may be null.
  Speculator(SpeculatorOptions options, std::unique_ptr<DraftModel> model);

  void set_fixed(int fixed) { options_.fixed = fixed; }
  // Before a plan. Errors: a fault of the draft model's device.
  Status prepare(sched::Scheduler& scheduler);
  const std::vector<Given>& given() const { return given_; }
  // After the commit of a step that took so long (0: not measured); also after sequences ended otherwise.
  void learn(const sched::StepOutcome& outcome, TimeUs took_us);
  const DraftCounters& counters() const { return counters_; }
  // Accepted over accepted and first rejections, of all since the start.
  double alpha() const;

 private:
  static constexpr double kProbeShare = 0.005;
  struct Proposed {
    std::vector<TokenId> tokens;
    int grade = 0;
    size_t at = 0;            // tokens known then; 0: there is nothing to look at
  };
  struct State {
    sched::RequestClass request_class{};
    OwnAcceptance own;
    Proposed proposed[kNumSources];
    Source given = Source::kNgram;
    bool waits = false;
  };
  struct Row {                // of this step's slots
    State* state;
    Source lookup;            // the better of the two
    int candidate;            // or -1
  };

  void look_back(const DraftSlot& slot, State& state);
  void look_up(std::span<const DraftSlot> slots);
  void gather(std::span<const DraftSlot> slots);
  Chances chances(const State& state, Source source, int grade, int count) const;
  void try_one(std::span<const DraftSlot> slots);
  int cheapest(std::span<const DraftSlot> slots) const;
  void decide(std::span<const DraftSlot> slots);
  void decide_fixed(std::span<const DraftSlot> slots);
  void probe(std::span<const DraftSlot> slots);
  Status ask_model(std::span<const DraftSlot> slots);
  void hand_over(sched::Scheduler& scheduler, std::span<const DraftSlot> slots);
  sched::StepShape base_shape(std::span<const DraftSlot> slots, double* progress) const;

  SpeculatorOptions options_;
  Ngram ngram_;
  Suffix suffix_;
  std::unique_ptr<DraftModel> model_;
  Acceptance acceptance_;
  std::unique_ptr<StepPrice> price_;
  std::unique_ptr<Control> control_;
  std::unordered_map<uint64_t, State> states_;
  DraftCounters counters_;
  std::vector<Given> given_;

  // Of this step, by slot or by candidate.
  std::vector<Row> rows_;
  std::vector<int> wanted_;
  std::vector<Proposal> proposals_[kNumSources];
  std::vector<Candidate> candidates_;
  std::vector<Choice> choices_;
  int waiting_ = 0;           // requests
  int max_step_tokens_ = 0;
  int prompt_tokens_ = 0;     // of the last step
  double probe_credit_us_ = 0;
  uint64_t steps_ = 0, probed_at_ = 0, model_used_at_ = 0;
};

}  // namespace sluice::draft
