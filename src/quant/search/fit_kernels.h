// The searches of fit.h, compiled for several instruction sets. All give the same results, bit for bit.
#pragma once
#include "quant/block_codes.h"

namespace sluice::quant {

constexpr int kLanes = 8;  // groups that are searched side by side

struct FitKernels {
  // Blocks with a scale of their own alone: count (1..kLanes) of them, x and weights [count, 32].
  void (*simple)(const BlockShape& shape, const float* x, const float* weights, int count, BlockCodes* out);
  // One block of 256 with integer scales.
  void (*super)(const BlockShape& shape, const float* x, const float* weights, BlockCodes& out);
};

const FitKernels& fit_kernels();  // the best that this machine runs
// For tests: nullptr where the machine does not run it.
const FitKernels* fit_kernels_of(const char* isa);  // "base", "avx2"

}  // namespace sluice::quant
