// A quantised cache's keys and values as f16, for attention of prompts: unpacked once a step and layer, where each task would unpack
// them again for its 128 rows. A number is its code times its row's scale, rounded to f16 and clamped to its range, as a cache of f16
// would have it; keys whose dimensions are mixed (quant/cache_row.h) are turned back.
#pragma once
#include "kernels/cuda/attention_task.cuh"

namespace sluice::kernels::cuda {

// How a context's memory is used. bucket 0: there is no room for some sequence.
Opened room_for_opened(const CudaContext* c, const AttentionArgs& a, const Prompts& prompts) noexcept;
// What belongs to opened.round.
void open_prompts(CudaContext* c, const AttentionArgs& a, const Opened& opened, const Prompts& prompts) noexcept;

}  // namespace sluice::kernels::cuda
