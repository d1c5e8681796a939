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

// A barrier in shared memory that some threads arrive at and others wait for; phases count from 0, and a wait names its phase's parity.
__device__ inline void barrier_init(uint64_t* b, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(arrivals) : "memory");
}
__device__ inline void barrier_arrive(uint64_t* b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}
__device__ inline void barrier_wait(uint64_t* b, int parity) {
  asm volatile("{ .reg .pred p; again: mbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1; @!p bra again; }" ::"r"(shared_address(b)), "r"(parity)
               : "memory");
}
// How many registers each thread of this warpgroup has from here on.
template <int n> __device__ inline void registers_give() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n)); }
template <int n> __device__ inline void registers_take() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n)); }

}  // namespace sluice::kernels::cuda
