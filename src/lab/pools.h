// Pools: whole engines over the same weights, each with its own cache, threads or device, policy and objective; from the
// command line's words to loaded models that are ready to run.
#pragma once
#include <array>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "draft/speculator.h"
#include "lab/loaded_model.h"
#include "lab/speculation.h"

namespace sluice::lab {

struct PoolSpec {
  std::string name = "default";
  std::string objective, kv_memory, kv_type, speculate;  // empty: as the command's own flags say
  int max_sequences = 0, threads = 0;         // 0 likewise; threads: cores that are the pool's alone
  double step_ms = 0;
  int device = -1;
  double weight = 1;                          // of its time, among pools that share cores
  std::array<bool, 2> takes{true, true};      // by sched::RequestClass: requests that name no pool
  std::vector<std::string> aliases;           // names of the model that lead to it
};

// "name[:key=value,...]" each: objective, kv, kv_type, max_sequences, step_ms, devices, threads, weight, class (interactive, batch
// or both), speculate, alias. A pool named batch has the objective throughput unless told; a pool takes batch requests when that is its
// objective, else interactive ones; what no pool takes the first does. Errors name --pool and the key.
Result<std::vector<PoolSpec>> parse_pools(const std::vector<std::string>& texts);

// cores: what may be used. Fills a list of cores for each pool: those with threads have theirs alone, the others share what is
// left. Error: more threads than cores, or none left.
Result<std::vector<std::vector<int>>> share_cores(const std::vector<PoolSpec>& pools, const std::vector<int>& cores);
std::vector<int> usable_cores(int at_most);   // of this process; at_most <= 0: all

struct LoadedPool {
  PoolSpec spec;
  LoadedModel model;
  std::vector<int> cores;                     // empty: any
  int gate_member = -1;                       // among pools that share cores, in their order; -1: it shares none
  std::shared_ptr<const LoadedModel> draft_model{}; // on the same device; or none
  std::shared_ptr<draft::Speculator> speculator{};  // of trials; or none
};

// A pool's own word goes before the command's.
SpeculateOptions speculation_of(const PoolSpec& pool, SpeculateOptions command);

// Loads the weights, and those of a draft model that a pool asks for, once a device, and plans each pool: on a device before its draft model
// is loaded. No specs: one pool that is as the options say. loaded: weights that are there already, or null.
// Error: kUnavailable naming --pool where a device has no room for all of its pools.
Result<std::vector<LoadedPool>> load_pools(const LoadOptions& options, const std::vector<PoolSpec>& specs, const SpeculateOptions& speculate,
                                           const std::function<void(size_t, size_t)>& progress, const LoadedModel* loaded = nullptr);

// While it lives the calling thread, and those it makes, run on these cores; empty: no change.
class OnCores {
 public:
  explicit OnCores(const std::vector<int>& cores);
  ~OnCores();
  OnCores(const OnCores&) = delete;

 private:
  std::vector<int> before_;
};

}  // namespace sluice::lab
