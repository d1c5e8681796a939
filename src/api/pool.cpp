#include "api/pool.h"

#include <algorithm>

namespace sluice::api {

const Pool* find_pool(std::span<const Pool> pools, std::string_view name) {
  const auto at = std::find_if(pools.begin(), pools.end(), [&](const Pool& p) { return p.name == name; });
  return at == pools.end() ? nullptr : &*at;
}

const Pool* pool_of_alias(std::span<const Pool> pools, std::string_view model) {
  for (const Pool& p : pools)
    if (std::find(p.aliases.begin(), p.aliases.end(), model) != p.aliases.end()) return &p;
  return nullptr;
}

const Pool& choose_pool(std::span<const Pool> pools, std::string_view model, std::string_view key_pool, sched::RequestClass request_class) {
  if (const Pool* p = pool_of_alias(pools, model)) return *p;
  if (const Pool* p = find_pool(pools, key_pool)) return *p;
  for (const Pool& p : pools)
    if (p.takes[size_t(request_class)]) return p;
  return pools.front();
}

}  // namespace sluice::api
