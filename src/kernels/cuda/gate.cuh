// The gate of a feed-forward layer: act(v) * up.
#pragma once
#include "kernels/abi.h"

namespace sluice::kernels::cuda {

__device__ inline float gated(Gate gate, float v, float up) {
  // 0.5 (1 + tanh u) = 1 / (1 + exp(-2u)), which cancels nothing
  const float u = gate == Gate::kSilu ? v : 1.5957691216057308f * (v + 0.044715f * v * v * v);
  return __fdividef(v, 1.0f + __expf(-u)) * up;
}

}  // namespace sluice::kernels::cuda
