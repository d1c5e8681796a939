// Hardware descriptions for the simulator: what a device gives, each number with its source, and the cost model that follows
// for a model of given sizes: the slower of memory and arithmetic for the dense part, the same for attention.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "exec/sim_executor.h"

namespace sluice::lab {

struct Hardware {
  std::string name, source;
  double bandwidth_gb_s = 0;      // of reads
  double gflop_s = 0;             // of dense products in the types used
  double overhead_us = 0;         // of a step, whatever is in it
  uint64_t memory_bytes = 0;
  bool accelerator = false;       // a server's defaults are those of a device with memory of its own
  std::vector<double> step_cost;  // StepCost::kept of a live server: used in place of the above where it is there
  double request_us = 0;          // from a client's sending to the scheduler, and back with the first token: HTTP, tokens, threads
};

// What a model moves and computes.
struct ModelSizes {
  uint64_t weight_bytes = 0, kv_bytes_per_token = 0;
  double layer_parameters = 0, head_parameters = 0;  // multiplied for every token; for every row of logits
  double attention_width = 0;                        // query heads * head size * layers
};

// "h100", "h200", "cpu" (measured now), or a JSON file with the keys of Hardware. Errors: kNotFound, kBadFile, kInvalidArgument.
Result<Hardware> find_hardware(const std::string& name, int threads);

// Of a learned model, steps of one shape differ as they did where it was learned, by a generator of this seed.
exec::CostModel cost_model(const Hardware& hardware, const ModelSizes& sizes, uint64_t seed = 1);

}  // namespace sluice::lab
