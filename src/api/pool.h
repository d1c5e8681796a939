// Pool: one engine behind the API, and which requests go there. Immutable; any thread.
#pragma once
#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "api/engine_port.h"
#include "sched/request.h"

namespace sluice::api {

struct Pool {
  std::string name = "default";
  std::shared_ptr<EnginePort> engine;
  std::array<bool, 2> takes{true, true};   // by sched::RequestClass: requests that name no pool
  std::vector<std::string> aliases = {};   // names of the model that lead here
};

// Where a request goes: to the pool that the model's name belongs to, else to its key's (key_pool, may be empty), else to the
// first that takes its class, else to the first.
const Pool& choose_pool(std::span<const Pool> pools, std::string_view model, std::string_view key_pool, sched::RequestClass request_class);

// The pool of this name, and the one whose model has this name; or null.
const Pool* find_pool(std::span<const Pool> pools, std::string_view name);
const Pool* pool_of_alias(std::span<const Pool> pools, std::string_view model);

}  // namespace sluice::api
