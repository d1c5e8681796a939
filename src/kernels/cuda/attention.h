// The ways to attend on the device; attention.cu chooses among them.
#pragma once
#include "kernels/cuda/cuda_context.h"

namespace sluice::kernels::cuda {

// Partial results of split attention: a unit is up to 16 rows (a token's query head each) of one sequence and KV head.
constexpr int kSplitUnits = 2048, kSplitRows = 16;
constexpr size_t kSplitFloats = size_t(kSplitUnits) * kSplitRows * (kMaxHeadDim + 4);

// float32 in one order for each token: caches of every type, any head size.
void attend_exactly(CudaContext* c, const AttentionArgs& a) noexcept;

// Tensor cores over f16 and bf16 caches, head sizes 64, 80, 96, 128, 256. Sequences of few rows (tokens times query heads
// of a KV head) go one way, the others another; each leaves the other's tokens alone.
constexpr int kFewRows = 32;
bool tensor_cores_take(const AttentionArgs& a) noexcept;
void attend_few(CudaContext* c, const AttentionArgs& a) noexcept;
void attend_many(CudaContext* c, const AttentionArgs& a) noexcept;

}  // namespace sluice::kernels::cuda
