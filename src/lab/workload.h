// Workloads: when requests come and how long they are - from a trace, or drawn from distributions, seeded. What the load
// generator sends and what the simulator is given.
#pragma once
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

struct WorkloadOptions {
  std::string trace;               // CSV: timestamp, prompt tokens, generated tokens; "": drawn from the two below
  std::string prompt_tokens = "128", output_tokens = "128";
  double rate = 0;                 // requests a second, Poisson; 0: all at once, or by the trace (of which a rate leaves the lengths)
  double trace_speed = 1;          // a trace's arrivals so many times faster; infinity: all at once
  int divide_lengths = 1;          // of a trace
  int requests = 64;               // at most, of a trace
  uint64_t seed = 1;
};

struct Arrival {
  double at_s = 0;
  int prompt_tokens = 0, output_tokens = 0;
};

// In order of arrival. Errors: kInvalidArgument, kNotFound, kBadFile naming the line.
Result<std::vector<Arrival>> plan_workload(const WorkloadOptions& options);

struct Percentiles { double p50 = 0, p90 = 0, p99 = 0, mean = 0; };
Percentiles percentiles_ms(std::vector<double> seconds);

}  // namespace sluice::lab
