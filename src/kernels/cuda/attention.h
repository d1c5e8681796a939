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
static_assert(kFewRows >= kRecordedRows);
bool tensor_cores_take(const AttentionArgs& a) noexcept;
// append: done by the same kernel; null: it is done. Heads are as rope_vectors_take wants them.
// most_rows: of the sequences of few rows, at most. of.prompts: those of many rows instead, which devices below 9.0 leave to it; append is null.
struct FewOf {
  bool prompts = false;
  int sequence = -1;  // this one alone
};
void attend_few(CudaContext* c, const AttentionArgs& a, const RopeAppendArgs* append, int most_rows, FewOf of = {}) noexcept;
// The sequences with many rows, and how many tiles of rows those before each have. count 0: the kernel looks for them.
struct Listed {
  static constexpr int kMost = 16;
  int count = 0, sequence[kMost], tiles[kMost];
};
// What the host knows of a step. Of the sequences with many rows, at most: their tiles of rows, their groups of 16 positions, and the most groups
// of one; groups is 0 where it does not know. few_rows: the most rows of the others, 0: there are none; most_rows: of all.
struct Prompts {
  size_t tiles = 0, groups = 0, longest = 0;
  int few_rows = 0, most_rows = 0;
  Listed listed;
};
Prompts prompts_of(const AttentionArgs& a) noexcept;
// Where the cache holds codes, attend_many unpacks prompts to memory of the context first: is there room?
bool can_open(const CudaContext* c, const AttentionArgs& a, const Prompts& prompts) noexcept;
size_t opened_bytes(const ContextOptions& o) noexcept;  // of that memory
void attend_many(CudaContext* c, const AttentionArgs& a, const Prompts& prompts) noexcept;

}  // namespace sluice::kernels::cuda
