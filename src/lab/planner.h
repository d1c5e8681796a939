// The planner: what a deployment takes before anything is loaded, term by term; how many sequences fit what there is; and the
// speed that memory bandwidth then allows, since a decode step reads the weights once and every sequence's cache.
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "lab/loaded_model.h"

namespace sluice::lab {

struct PlanRequest {
  LoadOptions load;
  std::string shape;           // "layers=80,kv_heads=8,head_dim=128,params=70e9" in place of a model; see parse_shape
  std::string draft;           // a second model that proposes tokens, with a cache of its own; "": none
  std::string memory;          // "80GiB"; "": what is free
  int sequences = 0;           // that should fit at the context; 0: one
  double bandwidth_gb_s = 0;   // given; 0: of the hardware
  std::string hardware;        // see find_hardware; "": this machine's or device's, measured
};

struct PlanTerm {
  std::string name;            // "weights"
  uint64_t bytes = 0;
  std::string what;            // one phrase
};

struct PlanSpeed {
  int64_t sequences = 0;
  double tok_s = 0;            // of all of them together, at the full context
};

struct PlanReport {
  std::vector<PlanTerm> terms; // what is there whatever the cache
  uint64_t fixed_bytes = 0, memory_bytes = 0;
  uint64_t kv_bytes_per_token = 0, draft_kv_bytes_per_token = 0;
  std::string kv_type;         // as asked for, by its shortest name
  exec::KvBytes kv_parts;      // of kv_bytes_per_token
  std::vector<std::pair<std::string, uint64_t>> kv_by_type;  // bytes a token of the model's cache, of what the backend has
  int64_t context = 0, max_tokens = 0, max_sequences = 0;
  bool fits = false;
  MemoryPlan served;           // what `serve` takes with these options (no cache where it does not fit), on a device with the draft model's
  double bandwidth_gb_s = 0;
  std::string bandwidth_source;
  std::vector<PlanSpeed> speeds;
};

// A model that there is no file of. layers, kv_heads, head_dim and params are needed; q_heads, dim, ffn_dim, vocab and context may be given, else they are what
// models of that size have. bits_per_weight: of what --weight-type says. Errors: kInvalidArgument naming the key and its limit.
Result<ModelShape> parse_shape(const std::string& text, double bits_per_weight, bool host_memory);

// Errors: as open_weights, plan_memory and find_hardware.
Result<PlanReport> plan_deployment(const PlanRequest& request);

}  // namespace sluice::lab
