// Where tokens lie in the cache: a block's keys, and its values, are [G][block_tokens][D].
#pragma once
#include "kernels/abi.h"

namespace sluice::kernels::cuda {

// Element (g, slot, 0) of the block that holds `position` of sequence s, in elements from the cache's start.
__device__ inline size_t cache_at(const BatchView& b, size_t block_elements, int s, int position, int g, int dim) {
  const int block = b.block_ids[b.block_begin[s] + position / b.block_tokens];
  return size_t(block) * block_elements + (size_t(g) * b.block_tokens + position % b.block_tokens) * dim;
}

}  // namespace sluice::kernels::cuda
