// sluice bench speculate: what drafts come to on the user's own prompts; prints what lab/bench_speculate.h reports.
#pragma once
#include <string>

#include "base/result.h"
#include "lab/bench_speculate.h"

namespace sluice::apps {

struct SpeculateFlags {
  lab::LoadOptions load;
  std::string draft;       // a model, or "ngram"
  std::string data, drafts = "1..8";
  lab::SpeculateBenchOptions bench;
  bool json = false;
};

Result<int> bench_speculate(SpeculateFlags flags);

}  // namespace sluice::apps
