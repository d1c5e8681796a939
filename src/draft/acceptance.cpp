#include "draft/acceptance.h"

#include <algorithm>

namespace sluice::draft {
namespace {

constexpr double kKeep = 0.98, kKeepOwn = 0.9;  // of what was observed, at each new outcome
constexpr double kPriorWeight = 2, kClassWeight = 4;  // in outcomes
// Before anything is measured: hopeful enough to be tried.
constexpr double kGuess[kNumSources][kGrades] = {{0.4, 0.6, 0.8}, {0.4, 0.5, 0.7}, {0.7, 0.7, 0.7}};

}  // namespace

void OwnAcceptance::observe(Source source, bool accepted) {
  Count& c = counts_[size_t(source)];
  c.tries = c.tries * kKeepOwn + 1;
  c.hits = c.hits * kKeepOwn + accepted;
}

double OwnAcceptance::temper(Source source, double of_class) const {
  const Count& c = counts_[size_t(source)];
  return (c.hits + kClassWeight * of_class) / (c.tries + kClassWeight);
}

void Acceptance::observe(Source source, int grade, sched::RequestClass cls, int place, bool accepted) {
  Count& c = counts_[index(source, grade, cls, std::min(place, sched::kMaxDrafts - 1))];
  c.tries = c.tries * kKeep + 1;
  c.hits = c.hits * kKeep + accepted;
}

void Acceptance::doubt(Source source, double keep) {
  for (size_t i = index(source, 0, {}, 0), end = i + size_t(kGrades) * 2 * sched::kMaxDrafts; i < end; ++i) {
    counts_[i].tries *= keep;
    counts_[i].hits *= keep;
  }
}

double Acceptance::probability(Source source, int grade, sched::RequestClass cls, int place) const {
  double p = kGuess[size_t(source)][grade];
  for (int i = 0; i <= std::min(place, sched::kMaxDrafts - 1); ++i) {
    const Count& c = cell(source, grade, cls, i);
    p = (c.hits + kPriorWeight * p) / (c.tries + kPriorWeight);
  }
  return p;
}

}  // namespace sluice::draft
