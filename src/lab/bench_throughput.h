// Throughput without HTTP: all requests at once through the server's own engine (scheduler, executor, its thread), greedy,
// each to its full length. Prompts are random tokens from a seed.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "lab/load_generator.h"
#include "lab/loaded_model.h"

namespace sluice::lab {

struct RequestLengths { int prompt = 0, output = 0; };

// FILE or FILE:LIST, JSON: {"prompt": [..], "output": [..]}, or lists of that kind by name. Errors: kNotFound, kBadFile.
Result<std::vector<RequestLengths>> read_lengths(const std::string& file_and_list);
// Drawn from two distributions (see Distribution).
Result<std::vector<RequestLengths>> draw_lengths(const std::string& prompt, const std::string& output, int requests, uint64_t seed);

struct ThroughputReport {
  int requests = 0, failed = 0;
  int64_t prompt_tokens = 0, output_tokens = 0;
  double duration_s = 0, output_tok_s = 0, total_tok_s = 0;
  // While every request decodes: from the last first token to the first end. 0 where there is no such time.
  double steady_tok_s = 0, steady_step_ms = 0;
  int live_peak = 0;      // requests at once between their first and their last token
  double live_mean = 0;   // over the whole time
  uint64_t steps = 0, preemptions = 0;
  Percentiles ttft_ms;
  uint64_t planned_bytes = 0, used_bytes = 0;  // of a device's memory
  std::string first_error;
};

// Errors: kContextLength when a request can never fit.
Result<ThroughputReport> bench_throughput(const LoadedModel& model, const std::vector<RequestLengths>& requests, uint64_t seed);

}  // namespace sluice::lab
