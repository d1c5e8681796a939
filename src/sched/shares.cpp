#include "sched/shares.h"

#include <algorithm>
#include <limits>

#include "base/result.h"

namespace sluice::sched {

double Shares::least_active() const {
  double least = std::numeric_limits<double>::infinity();
  for (const auto& [key, e] : entries_)
    if (e.open > 0) least = std::min(least, e.served);
  return least;
}

void Shares::open(uint64_t key) {
  const double least = active_ > 0 ? least_active() : 0;
  Entry& e = entries_[key];
  if (e.open++ > 0) return;
  e.served = std::max(e.served, least);
  ++active_;
}

void Shares::close(uint64_t key) {
  Entry& e = entries_.at(key);
  SLUICE_CHECK(e.open > 0);
  if (--e.open > 0) return;
  --active_;
  // Strangers cannot fill memory: who is not here and was served no more than those who are would start level with them anyway.
  if (entries_.size() <= kMaxIdle) return;
  const double least = active_ > 0 ? least_active() : std::numeric_limits<double>::infinity();
  std::erase_if(entries_, [&](const auto& x) { return x.second.open == 0 && x.second.served <= least; });
  if (entries_.size() > 16 * kMaxIdle) std::erase_if(entries_, [](const auto& x) { return x.second.open == 0; });
}

double Shares::served(uint64_t key) const {
  const auto it = entries_.find(key);
  return it == entries_.end() ? 0 : it->second.served;
}

}  // namespace sluice::sched
