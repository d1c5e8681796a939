#include "draft/step_price.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace sluice::draft {
namespace {

constexpr double kFade = 1.0 / 2000;  // a correction loses a third of its worth in so many steps without news
constexpr double kLearn = 0.1;
constexpr double kLeast = 0.5, kMost = 2;

}  // namespace

int StepPrice::bucket(int tokens) {
  if (tokens <= kExact) return std::max(0, tokens - 1);
  return std::min(kBuckets - 1, kExact + int(std::bit_width(unsigned(tokens - 1))) - 6);
}

double StepPrice::predict(const sched::StepShape& shape) const {
  int nearest = bucket(shape.tokens);  // of those measured, not above
  while (nearest > 0 && corrections_[size_t(nearest)].seen == 0) --nearest;
  const Correction& c = corrections_[size_t(nearest)];
  const double age = double(steps_ - c.at) * kFade;
  return cost_->predict(shape) * (c.seen == 0 ? 1 : 1 + (c.factor - 1) * std::exp(-age));
}

void StepPrice::observe(const sched::StepShape& shape, TimeUs took_us) {
  ++steps_;
  const double predicted = cost_->predict(shape);
  if (!(predicted > 0) || took_us <= 0) return;
  Correction& c = corrections_[size_t(bucket(shape.tokens))];
  const double ratio = std::clamp(double(took_us) / predicted, kLeast, kMost);
  c.factor += (ratio - c.factor) * std::max(kLearn, 1.0 / double(++c.seen + 1));
  c.at = steps_;
}

}  // namespace sluice::draft
