// Proposer: guesses what comes after a sequence's known tokens. It keeps up with what sequences know, and proposes as many as it
// is asked for; whether that pays, and how many are verified, is decided elsewhere (control.h). Guesses need not be right.
// One thread: the engine's.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "sched/scheduler.h"

namespace sluice::draft {

using sched::DraftSlot;
using sched::TokenId;

// In rising order of price.
enum class Source : uint8_t { kNgram, kSuffix, kModel };
constexpr int kNumSources = 3;
constexpr const char* kSourceNames[kNumSources] = {"ngram", "suffix", "model"};

// How sure a proposer is, in its own terms: what is accepted is measured apart by it.
constexpr int kGrades = 3;

struct Proposal {
  std::vector<TokenId> tokens;
  std::vector<std::vector<float>> distributions;  // what each was drawn from [target's vocabulary], where rejection asks for it
  int grade = 0;
};

class Proposer {
 public:
  virtual ~Proposer() = default;
  // Slots are those of this step; wanted[i]: drafts asked for slot i, 0: it is only followed, below 0: left alone. proposals[i]
  // gets at most so many. An error is a device fault.
  virtual Status propose(std::span<const DraftSlot> slots, std::span<const int> wanted, std::span<Proposal> proposals) = 0;
  // The sequence is over.
  virtual void forget(uint64_t sequence) = 0;
};

}  // namespace sluice::draft
