// StepCost: microseconds that a step will take, from what is in it; learned from the steps that ran, on the machine they ran on.
// A sum of the sizes below, each times a cost that is never negative, with a cost of its own for each range of the number of tokens
// (weights are read once however few the tokens are; beyond that arithmetic counts). The costs are least squares under that bound of
// errors relative to the prediction, older steps counting less: relative to what was measured, a fit would favour the shortest of
// steps alike, and predictions would not add up to what steps take. How far steps of one shape differ is kept too, for the
// simulator. Pure: the same observations give the same predictions. One thread.
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

  // All of the model, for recordings. restore takes what state or kept gave; anything else is refused (false) and changes nothing.
  std::vector<double> state() const;
  bool restore(std::span<const double> state);
  // The same for later: what steps cost over some thousands of them. What a server learned last is of its load's end, when little
  // else ran, and neither a restart nor the simulator begins there.
  std::vector<double> kept() const;

 private:
  static constexpr int kErrors = 256, kRatios = 1024;
  // Least squares: decayed sums of the terms over the prediction, of the same times what was measured, and of 1.
  struct Sums {
    std::array<std::array<double, kTerms>, kTerms> moments{};
    std::array<double, kTerms> target{};
    double weight = 0;
    void add(const std::array<double, kTerms>& x, double y, double forget);
    void fit(std::array<double, kTerms>& cost, int sweeps) const;
  };
  std::array<double, kSpread> spread_quantiles() const;
  std::vector<double> state_of(const std::array<double, kTerms>& cost, const Sums& sums, double scale) const;
  std::array<double, kTerms> cost_{};  // milliseconds a unit of each term, never below 0
  Sums recent_, long_;
  uint64_t observed_ = 0;
  std::array<float, kRatios> ratios_{};                   // measured over predicted
  uint64_t num_ratios_ = 0;
  std::array<double, kSpread> known_spread_{};            // restored; zeros: none
};

}  // namespace sluice::sched
