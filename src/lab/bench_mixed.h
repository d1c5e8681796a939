// Prompts that arrive among decodes: `batch` sequences decode throughout while prompts come one after another, through the
// server's scheduler and an executor, without its thread and HTTP. Once with the bound that keeps gaps even, once with prompts as
// they come, in turns.
#pragma once
#include <string>
#include <vector>

#include "lab/bench_step.h"
#include "lab/workload.h"

namespace sluice::lab {

struct MixedOptions {
  std::vector<int> batches{8};  // sequences that decode
  int context = 128;            // tokens cached before they do
  std::string prompt_tokens = "512";  // of each prompt: a number or a distribution
  int prompts = 4;              // a repeat; it ends with the last of them
  int repeats = 5;
  double step_ms = 0;           // > 0: the bound, in place of the objective's
  uint64_t seed = 1;
};

// tok_s, tok_s_min and tok_s_max are of the decodes; step_ms is the median step.
struct MixedRow : BenchRow {
  std::string chunks;           // "bounded", "unbounded"
  double prompt_tok_s = 0;
  int prompts = 0;              // that ended while timed
  double step_p99_ms = 0, gap_p50_ms = 0, gap_p99_ms = 0;  // gaps: between the tokens of a sequence that decodes
};

// Errors: kInvalidArgument, kContextLength, kUnavailable.
Result<std::vector<MixedRow>> bench_mixed(const LoadedModel& model, const MixedOptions& options, const MachineCeilings& machine);

}  // namespace sluice::lab
