#include "engine/stats.h"

namespace sluice::engine {
namespace {

// The bounds that dashboards of other servers use, so that panels carry over.
constexpr double kFirstToken[] = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560};
constexpr double kPerToken[] = {.0025, .005, .01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80};
constexpr double kLong[] = {.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};

}  // namespace

Histogram::Histogram(std::span<const double> bounds) : bounds_(bounds.first(std::min<size_t>(bounds.size(), kMaxBuckets))) {}

void Histogram::observe(double value) noexcept {
  size_t i = 0;
  while (i < bounds_.size() && value > bounds_[i]) ++i;
  buckets_[i].fetch_add(1, std::memory_order_relaxed);
  count_.fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

Stats::Stats() : time_to_first_token(kFirstToken), time_per_output_token(kPerToken), end_to_end(kLong), queue_time(kLong) {}

}  // namespace sluice::engine
