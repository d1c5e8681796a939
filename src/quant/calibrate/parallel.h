// How the arithmetic here is spread over threads: calls fn(i) for every i in [0, n), in any order, and returns when all have returned.
#pragma once
#include <functional>

namespace sluice::quant {

using Parallel = std::function<void(int n, const std::function<void(int)>& fn)>;
inline void serial(int n, const std::function<void(int)>& fn) {
  for (int i = 0; i < n; ++i) fn(i);
}

}  // namespace sluice::quant
