#include "sched/step_cost.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

namespace sluice::sched {
namespace {

constexpr double kForget = 0.998;      // a step of 350 steps ago counts half,
constexpr double kForgetLong = 0.9998; // for what is kept one of 3,500 steps
constexpr double kMaxReference = 2;    // a prediction further off than this is no measure of errors, and bounds what a stalled step does
constexpr int kSweeps = 4;             // of coordinate descent a step, from where the last step left it
constexpr int kLongSweeps = 400;       // for what is kept, from there
constexpr int kBends[] = {16, 64, 192, 512};  // tokens
constexpr size_t kRanges = 1 + std::size(kBends), kOthers = 1 + kRanges;  // terms of tokens, then what else there is
constexpr uint64_t kKnownAfter = 4;
constexpr double kQuantiles[StepCost::kSpread] = {0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.995, 1};
constexpr uint64_t kLeastRatios = 64;  // for a spread of one's own

// Each near 1 for steps of common sizes.
std::array<double, StepCost::kTerms> terms(const StepShape& s) {
  std::array<double, StepCost::kTerms> x{1.0};
  int from = 0;
  for (size_t i = 0; i < kRanges && from < s.tokens; ++i) {
    const int to = i < std::size(kBends) ? std::min(s.tokens, kBends[i]) : s.tokens;
    x[1 + i] = (to - from) / 64.0;
    from = to;
  }
  x[kOthers] = double(s.cached_tokens) / 4096;
  x[kOthers + 1] = double(s.pairs) / 65536;
  x[kOthers + 2] = s.rows / 16.0;
  return x;
}

}  // namespace

double StepCost::predict(const StepShape& s) const {
  if (observed_ < kKnownAfter) return 0;
  const auto x = terms(s);
  return std::inner_product(x.begin(), x.end(), cost_.begin(), 0.0) * 1000;
}

void StepCost::observe(const StepShape& shape, TimeUs took_us) {
  const double ms = double(std::max<TimeUs>(took_us, 1)) / 1000;
  const double predicted = predict(shape) / 1000;
  if (predicted > 0) ratios_[num_ratios_++ % kRatios] = float(ms / predicted);
  ++observed_;
  const double reference = predicted > 0 ? std::clamp(predicted, ms / kMaxReference, ms * kMaxReference) : ms;
  auto x = terms(shape);
  for (double& v : x) v /= reference;
  recent_.add(x, ms / reference, kForget);
  long_.add(x, ms / reference, kForgetLong);
  recent_.fit(cost_, kSweeps);
}

void StepCost::Sums::add(const std::array<double, kTerms>& x, double y, double forget) {
  for (size_t i = 0; i < kTerms; ++i) {
    for (size_t j = 0; j < kTerms; ++j) moments[i][j] = forget * moments[i][j] + x[i] * x[j];
    target[i] = forget * target[i] + x[i] * y;
  }
  weight = forget * weight + 1;
}

// Coordinate descent: each cost in turn to where the squares are least given the others, or to 0.
void StepCost::Sums::fit(std::array<double, kTerms>& cost, int sweeps) const {
  for (int sweep = 0; sweep < sweeps; ++sweep)
    for (size_t i = 0; i < kTerms; ++i) {
      if (moments[i][i] <= 0) continue;
      const double slope = std::inner_product(cost.begin(), cost.end(), moments[i].begin(), 0.0) - target[i];
      cost[i] = std::max(0.0, cost[i] - slope / moments[i][i]);
    }
}

double StepCost::error_p90() const {
  const size_t n = size_t(std::min<uint64_t>(num_ratios_, kErrors));
  if (n == 0) return 0;
  std::array<float, kErrors> sorted;
  for (size_t i = 0; i < n; ++i) sorted[i] = std::abs(1 / ratios_[(num_ratios_ - 1 - i) % kRatios] - 1);
  const auto at = sorted.begin() + ptrdiff_t(n * 9 / 10);
  std::nth_element(sorted.begin(), at, sorted.begin() + ptrdiff_t(n));
  return double(*at);
}

std::array<double, StepCost::kSpread> StepCost::spread_quantiles() const {
  if (num_ratios_ < kLeastRatios) return known_spread_;
  const size_t n = size_t(std::min<uint64_t>(num_ratios_, kRatios));
  std::array<float, kRatios> sorted = ratios_;
  std::sort(sorted.begin(), sorted.begin() + ptrdiff_t(n));
  const double mean = std::accumulate(sorted.begin(), sorted.begin() + ptrdiff_t(n), 0.0) / double(n);
  std::array<double, kSpread> out;
  for (size_t i = 0; i < kSpread; ++i) out[i] = double(sorted[size_t(kQuantiles[i] * double(n - 1))]) / mean;
  return out;
}

double StepCost::spread(double u) const {
  const auto known = spread_quantiles();
  if (known[kSpread - 1] <= 0) return 1;
  size_t i = 1;
  while (i + 1 < kSpread && kQuantiles[i] < u) ++i;
  const double part = (u - kQuantiles[i - 1]) / (kQuantiles[i] - kQuantiles[i - 1]);
  return known[i - 1] + std::clamp(part, 0.0, 1.0) * (known[i] - known[i - 1]);
}

std::vector<double> StepCost::state_of(const std::array<double, kTerms>& cost, const Sums& sums, double scale) const {
  std::vector<double> out{double(observed_)};
  out.insert(out.end(), cost.begin(), cost.end());
  for (double v : sums.target) out.push_back(v * scale);
  for (const auto& row : sums.moments)
    for (double v : row) out.push_back(v * scale);
  const auto spread = spread_quantiles();
  out.insert(out.end(), spread.begin(), spread.end());
  return out;
}

std::vector<double> StepCost::state() const { return state_of(cost_, recent_, 1); }

// With the weight that recent steps have: whoever goes on from it learns as fast.
std::vector<double> StepCost::kept() const {
  auto cost = cost_;
  long_.fit(cost, kLongSweeps);
  return state_of(cost, long_, long_.weight > 0 ? recent_.weight / long_.weight : 1);
}

bool StepCost::restore(std::span<const double> state) {
  constexpr size_t kModel = 1 + 2 * kTerms + kTerms * kTerms;
  if (state.size() != kModel + kSpread || !(state[0] >= 0 && state[0] < 1e15)) return false;
  for (double v : state)
    if (!(std::isfinite(v) && v >= 0)) return false;
  const auto spread = state.subspan(kModel);
  if (!std::is_sorted(spread.begin(), spread.end())) return false;
  observed_ = uint64_t(state[0]);
  std::copy_n(state.begin() + 1, kTerms, cost_.begin());
  std::copy_n(state.begin() + 1 + kTerms, kTerms, recent_.target.begin());
  for (size_t i = 0; i < kTerms; ++i) std::copy_n(state.begin() + 1 + ptrdiff_t((2 + i) * kTerms), kTerms, recent_.moments[i].begin());
  recent_.weight = (1 - std::pow(kForget, double(observed_))) / (1 - kForget);
  long_ = recent_;
  std::copy(spread.begin(), spread.end(), known_spread_.begin());
  num_ratios_ = 0;
  return true;
}

}  // namespace sluice::sched
