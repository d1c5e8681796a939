// Control: how many drafts each sequence gets in a step, and from whom, so that tokens per microsecond are most. A step gives what
// it would give without drafts (a token for every sequence that decodes, and the tokens of prompts: progress too) plus what of the
// drafts is expected to stand, and takes what StepPrice says of its size, plus what drafting takes. Where that is more without
// drafts, there are none: under load another token costs as much arithmetic as any other, and a guess is worth less than a fact.
// (Expected gain of k drafts: Leviathan et al., arXiv:2211.17192; here by sequence and place, over the whole batch.)
// Pure; one thread.
#pragma once
#include <functional>
#include <span>
#include <vector>

#include "draft/proposer.h"
#include "draft/step_price.h"

namespace sluice::draft {

// Probabilities that each of a sequence's drafts stands if those before it do.
struct Chances {
  float of[sched::kMaxDrafts] = {};
  int count = 0;
  double gain(int k) const;        // expected drafts that stand, of the first k
};

struct Candidate {
  int64_t length = 0;              // tokens known
  Chances lookup;                  // of drafts in hand, which cost nothing to make
  Chances model;                   // of drafts that the draft model could make
  double catch_up_us = 0;          // what the draft model would compute first, a step's share of it
};

struct Choice {
  int lookup = 0, model = 0;       // drafts to verify; one of them is 0
};

struct Situation {
  sched::StepShape base;           // the step without drafts
  double progress = 0;             // tokens that it gives, of prompts and of outputs
  std::function<double(int sequences, int64_t cached_tokens)> pass_us;  // of the draft model; empty: there is none
};

class Control {
 public:
  explicit Control(const StepPrice* price) : price_(price) {}
  // choices: [candidates]. Nothing while nothing is known of a step's price.
  void choose(const Situation& now, std::span<const Candidate> candidates, std::span<Choice> choices);

 private:
  double rate(const Situation& now, double gain, int tokens, int64_t pairs, double draft_us) const;
  double choose_lookups(const Situation& now, std::span<const Candidate> candidates, std::span<Choice> choices);
  void choose_model(const Situation& now, std::span<const Candidate> candidates, std::span<Choice> choices, double best);

  struct Draft { float gain; int candidate; };
  const StepPrice* price_;
  std::vector<Draft> drafts_;
  std::vector<int> order_;
};

}  // namespace sluice::draft
