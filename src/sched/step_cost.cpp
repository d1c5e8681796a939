#include "sched/step_cost.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>

namespace sluice::sched {
namespace {

constexpr double kForget = 0.998;      // a step of 350 steps ago counts half
constexpr double kFirstSpread = 1e4;   // how little is known at first
constexpr double kMaxSpread = 1e6;     // terms that no longer vary must not grow without bound
constexpr double kMaxMiss = 1;         // one stalled step must not bend the model
constexpr int kBends[] = {16, 64, 192, 512};  // tokens
constexpr size_t kSlopes = 1 + std::size(kBends), kOthers = 1 + kSlopes;  // terms of tokens, then what else there is
constexpr uint64_t kKnownAfter = 4;
constexpr double kLevelForget = 0.99, kMaxLevel = 2;
constexpr double kQuantiles[StepCost::kSpread] = {0, 0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.995, 1};
constexpr uint64_t kLeastRatios = 64;  // for a spread of one's own

// Each near 1 for steps of common sizes.
std::array<double, StepCost::kTerms> terms(const StepShape& s) {
  std::array<double, StepCost::kTerms> x{1.0, s.tokens / 64.0};
  for (size_t i = 0; i < std::size(kBends); ++i) x[2 + i] = std::max(0, s.tokens - kBends[i]) / 64.0;
  x[kOthers] = double(s.cached_tokens) / 4096;
  x[kOthers + 1] = double(s.pairs) / 65536;
  x[kOthers + 2] = s.rows / 16.0;
  return x;
}

}  // namespace

double StepCost::predict(const StepShape& s) const {
  const double level = expected_ms_ > 0 ? std::clamp(taken_ms_ / expected_ms_, 1 / kMaxLevel, kMaxLevel) : 1;
  return fitted_ms(s) * level * 1000;
}

double StepCost::fitted_ms(const StepShape& s) const {
  if (observed_ < kKnownAfter) return 0;
  // No slope may be negative, or a larger step would look cheaper.
  const auto& w = weight_;
  double ms = std::max(0.0, w[0]), slope = 0;
  int from = 0;
  for (size_t i = 0; i < kSlopes && from < s.tokens; ++i) {
    slope += w[1 + i];
    const int to = i < std::size(kBends) ? std::min(s.tokens, kBends[i]) : s.tokens;
    ms += std::max(0.0, slope) * (to - from) / 64.0;
    from = to;
  }
  const auto x = terms(s);
  for (size_t i = kOthers; i < kTerms; ++i) ms += std::max(0.0, w[i]) * x[i];
  return ms;
}

void StepCost::observe(const StepShape& shape, TimeUs took_us) {
  const double ms = double(std::max<TimeUs>(took_us, 1)) / 1000;
  const double predicted = predict(shape) / 1000;
  if (predicted > 0) ratios_[num_ratios_++ % kRatios] = float(ms / predicted);
  if (observed_++ == 0)
    for (int i = 0; i < kTerms; ++i) spread_[size_t(i)][size_t(i)] = kFirstSpread;
  if (const double fitted = fitted_ms(shape); fitted > 0) {
    // One stalled step must not lift the level either.
    taken_ms_ = kLevelForget * taken_ms_ + std::min(ms, 4 * fitted);
    expected_ms_ = kLevelForget * expected_ms_ + fitted;
  }
  // Least squares on terms / ms against 1: every step's relative error counts alike.
  auto x = terms(shape);
  for (double& v : x) v /= ms;
  std::array<double, kTerms> gain{};
  double miss = 1, scale = kForget;
  for (size_t i = 0; i < kTerms; ++i) {
    for (size_t j = 0; j < kTerms; ++j) gain[i] += spread_[i][j] * x[j];
    miss -= x[i] * weight_[i];
    scale += x[i] * gain[i];
  }
  if (observed_ > 4 * kTerms) miss = std::clamp(miss, -kMaxMiss, kMaxMiss);
  double largest = 0;
  for (size_t i = 0; i < kTerms; ++i) {
    weight_[i] += gain[i] / scale * miss;
    for (size_t j = 0; j < kTerms; ++j) spread_[i][j] = (spread_[i][j] - gain[i] * gain[j] / scale) / kForget;
    largest = std::max(largest, spread_[i][i]);
  }
  if (largest > kMaxSpread)
    for (auto& row : spread_)
      for (double& v : row) v *= kMaxSpread / largest;
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

std::vector<double> StepCost::state() const {
  std::vector<double> out{double(observed_), taken_ms_, expected_ms_};
  out.insert(out.end(), weight_.begin(), weight_.end());
  for (const auto& row : spread_) out.insert(out.end(), row.begin(), row.end());
  const auto spread = spread_quantiles();
  out.insert(out.end(), spread.begin(), spread.end());
  return out;
}

bool StepCost::restore(std::span<const double> state) {
  constexpr size_t kModel = 3 + kTerms + kTerms * kTerms;
  if (state.size() != kModel + kSpread || !(state[0] >= 0 && state[0] < 1e15)) return false;
  for (double v : state)
    if (!std::isfinite(v)) return false;
  const auto spread = state.subspan(kModel);
  if (!std::is_sorted(spread.begin(), spread.end()) || spread.front() < 0 || state[1] < 0 || state[2] < 0) return false;
  observed_ = uint64_t(state[0]);
  taken_ms_ = state[1];
  expected_ms_ = state[2];
  std::copy_n(state.begin() + 3, kTerms, weight_.begin());
  for (size_t i = 0; i < kTerms; ++i) std::copy_n(state.begin() + 3 + kTerms + ptrdiff_t(i * kTerms), kTerms, spread_[i].begin());
  std::copy(spread.begin(), spread.end(), known_spread_.begin());
  num_ratios_ = 0;
  return true;
}

}  // namespace sluice::sched
