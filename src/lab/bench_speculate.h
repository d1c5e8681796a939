// Speculation measured on somebody's own prompts: how many drafts stand, what they cost, how much faster it is than without - for
// every number of drafts - and what follows from that. Prompts are run one at a time, without and with in turn, so that both see
// the same machine; tokens must be the same in both.
#pragma once
#include <string>
#include <vector>

#include "lab/loaded_model.h"
#include "lab/speculation.h"

namespace sluice::lab {

struct SpeculateBenchOptions {
  std::vector<int> drafts{1, 2, 3, 4, 5, 6, 7, 8};
  int max_tokens = 128;
  double temperature = 0;
  uint64_t seed = 1;
  bool chat = false;             // apply the model's chat template
  int prompts = 0;               // at most; 0: all
  double oracle = 0;             // > 0: what the draft model says is put right with this probability, and wrong without (oracle_executor.h)
};

struct Ratio { double value = 0, low = 0, high = 0; };  // median over prompts, and its 95 % interval

// What k drafts at most come to.
struct SpeculateRow {
  int k = 0;                     // -1: as many as the control decides
  double alpha = 0;              // accepted over accepted and first rejections
  double accepted_per_step = 0;  // tokens a step gives, the target's own among them
  double v_k = 0;                // a step of k + 1 rows over one of 1
  double predicted_speedup = 0;  // (1 - alpha^(k+1)) / ((1 - alpha)(k c + v_k))
  Ratio measured_speedup;
};

struct SpeculateReport {
  std::string draft;             // "ngram", or the draft model's name
  double c = 0;                  // a pass of the draft model over a step of the target of 1 row
  double step_ms = 0;            // of 1 row
  std::vector<SpeculateRow> rows;
  SpeculateRow adaptive;         // k -1
  int best_k = 0;                // by measured speed-up; 0: none is faster
  int prompts = 0, output_tokens = 0;
  int differing = 0;             // replies that were other tokens than without: always 0
  // Of temperatures above 0: expected acceptance of one draft by either rule on these prompts (sample/accept.h, rejection.h).
  double alpha_coupled = 0, alpha_rejection = 0;
  std::string advice;
};

// Executors of the draft model at once, beside one of the target: of the fixed ways and of the adaptive one.
constexpr int kBenchDraftExecutors = 2;

// Blocks of cache that the bench needs, of either model: it has one sequence at a time, of the longest prompt and its reply, or of the steps whose
// cost is measured.
int bench_blocks(int64_t longest_prompt, const SpeculateBenchOptions& options, int block_tokens);
// The target with a cache of that size, where nobody told another, or of what it has if that is less. draft: as it was loaded with.
Result<LoadedModel> with_bench_cache(const LoadedModel& target, LoadOptions load, const DraftNeeds& draft, const std::vector<std::vector<int32_t>>& prompts,
                                     const SpeculateBenchOptions& options);

// Texts of a .txt file (one prompt) or of the "prompt" members of a .jsonl. Errors: kNotFound, kBadFile.
Result<std::vector<std::string>> read_prompts(const std::string& path);

// draft: null for lookups. Errors: kContextLength where a prompt does not fit; kInvalidArgument where a model's cache is too small for the
// steps whose cost is measured.
Result<SpeculateReport> bench_speculate(LoadedModel& target, const LoadedModel* draft, const std::vector<std::vector<int32_t>>& prompts, const SpeculateBenchOptions& options);

}  // namespace sluice::lab
