// Load generator: sends requests to any OpenAI server over HTTP and reports what its clients saw. Open loop (arrivals by a
// trace or a rate) or closed (a fixed concurrency). Prompts are random words, seeded, so that every server gets the same.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "lab/workload.h"

namespace sluice::lab {

struct GeneratorOptions : WorkloadOptions {
  std::string url;                 // http://host:port
  std::string model;               // "" asks /v1/models
  std::string api_key;
  int concurrency = 16;            // at most this many at once
  double slo_ttft_ms = 0, slo_tpot_ms = 0;  // 0: no target
  std::string service_tier;        // "", or "flex" for batch
};

struct LoadReport {
  int requests = 0, ok = 0, rejected = 0, failed = 0;
  double duration_s = 0, output_tok_s = 0, total_tok_s = 0, goodput_rps = 0;
  int64_t prompt_tokens = 0, output_tokens = 0;
  Percentiles ttft_ms, tpot_ms, itl_ms, e2e_ms;
  std::string first_error;
};

// "ttft_ms=500,tpot_ms=30", either of them, or "". Errors: kInvalidArgument.
Status parse_slo(const std::string& text, double& ttft_ms, double& tpot_ms);

// progress(done, total) may be null; any thread.
Result<LoadReport> generate_load(const GeneratorOptions& options, const std::function<void(int, int)>& progress);

}  // namespace sluice::lab
