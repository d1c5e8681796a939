// StepCost: microseconds that a step will take, from what is in it; learned from the steps that ran, on the machine they ran on.
// A linear model of the sizes below with bends in the number of tokens (weights are read once however few the tokens are;
// beyond that arithmetic counts), fitted online by recursive least squares on the relative error, older steps counting less. Such
// a fit favours the shortest of steps alike, so predictions are brought to the level at which they add up to what steps take. How far steps of one shape differ is kept too, for the simulator. Pure: the same observations give the same predictions. One thread.
#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/clock.h"

namespace sluice::sched {

// Sizes of a step; what each sequence adds is added up.
struct StepShape {
  int tokens = 0;            // that go through the layers
  int rows = 0;              // of logits
  int64_t cached_tokens = 0; // keys and values that attention reads: every sequence's length
  int64_t pairs = 0;         // (query, key) pairs that attention works on
  // A sequence of `length` tokens after this step, `count` of them computed in it.
  void add(int count, int64_t length, int num_rows) {
    tokens += count;
    rows += num_rows;
    cached_tokens += length;
    pairs += int64_t(count) * length - int64_t(count) * (count - 1) / 2;
  }
};

class StepCost {
 public:
  static constexpr int kTerms = 9, kSpread = 16;

  // Microseconds; 0 while nothing is known. Never falls when a shape grows.
  double predict(const StepShape& shape) const;
  // A step of this shape took so long (> 0). Learns, and notes how far the prediction was off.
  void observe(const StepShape& shape, TimeUs took_us);

  uint64_t num_observed() const { return observed_; }
  // Of |predicted - measured| / measured over the last kErrors steps, as predicted before each ran.
  double error_p90() const;
  // What a step takes over what steps of its shape take on average, at quantile u of 0..1 of the last kRatios; 1 while few are
  // known.
  double spread(double u) const;

  // All of the model, to be kept across restarts and in recordings. restore takes what state gave; anything else is refused
  // (false) and changes nothing.
  std::vector<double> state() const;
  bool restore(std::span<const double> state);

 private:
  static constexpr int kErrors = 256, kRatios = 1024;
  std::array<double, kSpread> spread_quantiles() const;
  double fitted_ms(const StepShape& shape) const;         // 0 while nothing is known
  std::array<double, kTerms> weight_{};                   // milliseconds a unit of each term
  std::array<std::array<double, kTerms>, kTerms> spread_{};  // inverse of the terms' weighted second moments
  uint64_t observed_ = 0;
  double taken_ms_ = 0, expected_ms_ = 0;                 // of recent steps, and what the fit said of them
  std::array<float, kRatios> ratios_{};                   // measured over predicted
  uint64_t num_ratios_ = 0;
  std::array<double, kSpread> known_spread_{};            // restored; zeros: none
};

}  // namespace sluice::sched
