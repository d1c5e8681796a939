// LoadTally: what the clients of some requests saw, summed up to a LoadReport; of a live server (load_generator) and of the simulator alike.
// Gaps between tokens are the caller's, who knows how to keep so many. One thread; no errors.
#pragma once
#include <vector>

#include "lab/load_generator.h"

namespace sluice::lab {

class LoadTally {
 public:
  // Targets for goodput; 0: none.
  LoadTally(double slo_ttft_ms, double slo_tpot_ms) : slo_ttft_ms_(slo_ttft_ms), slo_tpot_ms_(slo_tpot_ms) {}
  // A request that was answered: seconds from its sending to its first and to its last token.
  void add(double first_s, double last_s, int64_t prompt_tokens, int64_t output_tokens);
  // Joins another's.
  void add(const LoadTally& other);
  int ok() const { return int(ttft_.size()); }
  // All but itl_ms, of so many seconds; requests are those that were answered.
  LoadReport report(double duration_s) const;

 private:
  double slo_ttft_ms_, slo_tpot_ms_;
  std::vector<double> ttft_, tpot_, e2e_;
  int64_t prompt_tokens_ = 0, output_tokens_ = 0;
  int good_ = 0;
};

}  // namespace sluice::lab
