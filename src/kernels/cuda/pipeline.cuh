// Shared memory's addresses, barriers of some of a block's threads, and asking the cache for what will be read.
#pragma once
#include <cstdint>

namespace sluice::kernels::cuda {

__device__ inline uint32_t shared_address(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }

// Asks the second-level cache for these bytes; address and number are multiples of 16.
__device__ inline void fetch_to_cache(const void* from, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}
// Copies of 16 bytes to shared memory of what is read once: it leaves the cache before what other kernels asked it for.
__device__ inline uint64_t policy_once() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ inline void copy_once(uint32_t to, const void* from, uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::256B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "l"(policy) : "memory");
}
// A barrier of the first `threads` threads of a block.
template <int threads>
__device__ inline void meet() { asm volatile("bar.sync 1, %0;" ::"n"(threads) : "memory"); }

}  // namespace sluice::kernels::cuda
