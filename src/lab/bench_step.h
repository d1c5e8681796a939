// Kernel-to-token speed without HTTP: decode and prefill steps driven straight through an executor.
#pragma once
#include <string>
#include <vector>

#include "lab/loaded_model.h"
#include "lab/machine.h"

namespace sluice::lab {

struct BenchRow {
  std::string name;
  int batch = 0, context = 0;
  double tok_s = 0, tok_s_min = 0, tok_s_max = 0;     // median, min, max over repeats
  double step_ms = 0;                                 // of a decode step; of a prompt to its first token
  double gb_s = 0, gflop_s = 0;                       // of weights and cache read; of dense products and attention
  double pct_of_bandwidth = 0, pct_of_compute = 0;
};

struct BenchOptions {
  std::vector<int> batches{1};
  int context = 128;      // tokens cached before a decode; tokens of a prompt for prefill
  int tokens = 64;        // decode steps a repeat
  int repeats = 5;
};

// Floating-point operations of one token at a context; a multiply-add counts as two. head: whether the output head runs for it.
double token_flops(const model::ModelSpec& spec, double context, bool head);

// Errors: kUnavailable, the device has no room.
Result<std::vector<BenchRow>> bench_decode(const LoadedModel& model, const BenchOptions& options, const MachineCeilings& machine);
Result<std::vector<BenchRow>> bench_prefill(const LoadedModel& model, const BenchOptions& options, const MachineCeilings& machine);

}  // namespace sluice::lab
