// Load generator: sends requests to any OpenAI server over HTTP and reports what its clients saw. Open loop (arrivals by a
// trace or a rate) or closed (a fixed concurrency). Prompts are random words, seeded, so that every server gets the same.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/rng.h"

namespace sluice::lab {

// "128", "uniform:a:b", "loguniform:a:b", "lognormal:mu:sigma:min:max".
class Distribution {
 public:
  static Result<Distribution> parse(const std::string& text, const std::string& field);
  int draw(Rng& rng) const;

 private:
  enum class Kind { kConstant, kUniform, kLogUniform, kLogNormal } kind_ = Kind::kConstant;
  double a_ = 0, b_ = 0, min_ = 1, max_ = 1e9;
};

struct GeneratorOptions {
  std::string url;                 // http://host:port
  std::string model;               // "" asks /v1/models
  std::string api_key;
  std::string trace;               // CSV: timestamp, prompt tokens, generated tokens; with a rate, its lengths alone
  std::string prompt_tokens = "128", output_tokens = "128";
  double rate = 0;                 // requests a second, Poisson; 0: no pause between arrivals
  int concurrency = 16;            // at most this many at once
  int requests = 64;
  double slo_ttft_ms = 0, slo_tpot_ms = 0;  // 0: no target
  std::string service_tier;        // "", or "flex" for batch
  uint64_t seed = 1;
};

struct Percentiles { double p50 = 0, p90 = 0, p99 = 0; };

struct LoadReport {
  int requests = 0, ok = 0, rejected = 0, failed = 0;
  double duration_s = 0, output_tok_s = 0, total_tok_s = 0, goodput_rps = 0;
  int64_t prompt_tokens = 0, output_tokens = 0;
  Percentiles ttft_ms, tpot_ms, itl_ms, e2e_ms;
  std::string first_error;
};

// progress(done, total) may be null; any thread.
Result<LoadReport> generate_load(const GeneratorOptions& options, const std::function<void(int, int)>& progress);

}  // namespace sluice::lab
