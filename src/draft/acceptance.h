// Acceptance: how often drafts stand, as measured: by source, its grade, the request's class and the place in the draft, older
// outcomes counting less; and what one sequence shows of its own. A draft after one that was rejected is not counted: nobody
// knows what it would have been. Pure; one thread.
#pragma once
#include <array>
#include <cstdint>

#include "draft/proposer.h"

namespace sluice::draft {

// Of one sequence, by source: its latest outcomes.
class OwnAcceptance {
 public:
  void observe(Source source, bool accepted);
  // The class's probability, moved towards what this sequence shows.
  double temper(Source source, double of_class) const;

 private:
  struct Count { double hits = 0, tries = 0; };
  std::array<Count, kNumSources> counts_{};
};

class Acceptance {
 public:
  void observe(Source source, int grade, sched::RequestClass cls, int place, bool accepted);
  // That the draft in this place stands if those before it do. Unmeasured: what the place before has, or a guess.
  double probability(Source source, int grade, sched::RequestClass cls, int place) const;
  // Outcomes of first drafts that the measurement rests on.
  double outcomes(Source source, int grade, sched::RequestClass cls) const { return cell(source, grade, cls, 0).tries; }
  // What is known of a source counts for so much less from here on: it has not been looked at for long.
  void doubt(Source source, double keep);

 private:
  struct Count { double hits = 0, tries = 0; };
  static size_t index(Source source, int grade, sched::RequestClass cls, int place) {
    return ((size_t(source) * kGrades + size_t(grade)) * 2 + size_t(cls)) * sched::kMaxDrafts + size_t(place);
  }
  const Count& cell(Source source, int grade, sched::RequestClass cls, int place) const { return counts_[index(source, grade, cls, place)]; }
  std::array<Count, size_t(kNumSources) * kGrades * 2 * sched::kMaxDrafts> counts_{};
};

}  // namespace sluice::draft
