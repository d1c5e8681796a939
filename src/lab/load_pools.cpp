// Pools' memory: weights once a device, then a plan for each pool's part of what is left.
#include <algorithm>
#include <map>

#include "lab/pools.h"

namespace sluice::lab {
namespace {

LoadOptions options_of(const LoadOptions& base, const PoolSpec& pool, size_t num_cores) {
  LoadOptions o = base;
  if (!pool.objective.empty()) o.objective = pool.objective;
  if (!pool.kv_memory.empty()) o.kv_memory = pool.kv_memory;
  if (!pool.kv_type.empty()) o.kv_type = pool.kv_type;
  if (pool.max_sequences > 0) o.max_sequences = pool.max_sequences;
  if (pool.step_ms > 0) o.step_ms = pool.step_ms;
  if (pool.device >= 0) o.device = "cuda:" + std::to_string(pool.device);
  if (num_cores > 0) o.threads = int(num_cores);
  return o;
}

// A pool on its way to be loaded.
struct Planned {
  LoadOptions load;
  SpeculateOptions speculate;
  DraftNeeds needs;
  LoadedModel model;
};

// What the pools on one device have in common.
struct Shared {
  LoadedModel target;
  std::shared_ptr<const LoadedModel> draft;
  uint64_t draft_weights = 0;    // on a device
  uint64_t taken = 0;            // by each pool for itself, of those planned so far
  uint64_t target_bytes() const { return target.memory.fixed() - target.memory.activation_bytes; }
};

Status load_targets(const LoadOptions& options, const std::vector<Planned>& pools, const std::function<void(size_t, size_t)>& progress,
                    std::map<std::string, Shared>& devices) {
  for (const Planned& p : pools) {
    Shared& shared = devices[p.load.device];
    DraftNeeds needs;            // of any pool there that has a draft model: without room for one nothing need be loaded
    for (const Planned& other : pools)
      if (other.load.device == p.load.device && other.needs.kv_bytes_per_token > 0) needs = other.needs;
    shared.draft_weights = needs.weights_bytes;
    if (shared.target.model) continue;
    LoadOptions first = options;
    first.device = p.load.device;
    SLUICE_ASSIGN(shared.target, load_model(first, progress, needs));
  }
  return {};
}

// Caches that were told go first. What is left beside them and what all share goes to the others in even parts.
Status plan_pools(std::vector<Planned>& pools, std::map<std::string, Shared>& devices) {
  for (const bool told : {true, false}) {
    std::map<std::string, uint64_t> before;
    for (const auto& [name, shared] : devices) before[name] = shared.taken;
    for (Planned& p : pools) {
      if (p.load.kv_memory.empty() == told) continue;
      Shared& shared = devices.at(p.load.device);
      const uint64_t common = shared.target_bytes() + shared.draft_weights + before[p.load.device], available = shared.target.memory.available_bytes;
      const uint64_t left = available > common ? available - common : 0, own = shared.target_bytes() + p.needs.weights_bytes;
      SLUICE_ASSIGN(p.model, reconfigure(shared.target, p.load, told ? available : own + left / pools.size(), p.needs));
      shared.taken += p.model.memory.total() - own;
    }
  }
  return {};
}

// Of devices: a host's memory is taken when it is used.
Status check_room(const std::vector<Planned>& pools, const std::map<std::string, Shared>& devices) {
  for (const Planned& p : pools) {
    const Shared& shared = devices.at(p.load.device);
    const uint64_t needed = shared.target_bytes() + shared.draft_weights + shared.taken, available = shared.target.memory.available_bytes;
    if (shared.target.model->kernels().host_memory || needed <= available) continue;
    return Error{ErrorCode::kUnavailable, "pools need " + std::to_string(needed) + " bytes on '" + p.load.device + "' (weights " + std::to_string(shared.target_bytes() + shared.draft_weights) +
                                              ", caches and steps " + std::to_string(shared.taken) + "), which has " + std::to_string(available) + " free", "--pool"};
  }
  return {};
}

}  // namespace

SpeculateOptions speculation_of(const PoolSpec& pool, SpeculateOptions command) {
  if (!pool.speculate.empty()) command.mode = pool.speculate;
  return command;
}

Result<std::vector<LoadedPool>> load_pools(const LoadOptions& options, const std::vector<PoolSpec>& specs, const SpeculateOptions& speculate,
                                           const std::function<void(size_t, size_t)>& progress, const LoadedModel* loaded) {
  std::vector<LoadedPool> out;
  if (specs.empty()) {
    SLUICE_ASSIGN(const DraftNeeds needs, draft_needs(options, speculate));
    SLUICE_ASSIGN(LoadedModel model, load_model(options, progress, needs));
    out.push_back({{}, std::move(model), {}, -1});
    if (!speculate.needs_draft()) return out;
    SLUICE_ASSIGN(LoadedModel draft, load_draft(out.front().model, options, speculate.draft));
    out.front().draft_model = std::make_shared<const LoadedModel>(std::move(draft));
    return out;
  }
  SLUICE_ASSIGN(const auto cores, share_cores(specs, usable_cores(options.threads)));
  std::vector<Planned> pools;
  for (size_t i = 0; i < specs.size(); ++i) {
    Planned p{options_of(options, specs[i], cores[i].size()), speculation_of(specs[i], speculate), {}, {}};
    SLUICE_ASSIGN(p.needs, draft_needs(p.load, p.speculate));
    pools.push_back(std::move(p));
  }
  std::map<std::string, Shared> devices;
  if (loaded) devices[options.device].target = *loaded;
  SLUICE_TRY(load_targets(options, pools, progress, devices));
  SLUICE_TRY(plan_pools(pools, devices));
  SLUICE_TRY(check_room(pools, devices));
  int shared = 0;
  for (size_t i = 0; i < specs.size(); ++i) {
    LoadedPool pool{specs[i], std::move(pools[i].model), {}, -1};
    if (pool.model.model->kernels().host_memory) {
      pool.cores = cores[i];
      if (specs[i].threads == 0) pool.gate_member = shared++;
    }
    if (pools[i].speculate.needs_draft()) {
      auto& first = devices.at(pools[i].load.device).draft;  // later ones have its weights
      SLUICE_ASSIGN(LoadedModel draft, load_draft(pool.model, pools[i].load, pools[i].speculate.draft, first.get()));
      pool.draft_model = std::make_shared<const LoadedModel>(std::move(draft));
      if (!first) first = pool.draft_model;
    }
    out.push_back(std::move(pool));
  }
  return out;
}

}  // namespace sluice::lab
