// Copies from global to shared memory that complete on barriers in shared memory (mbarrier, cp.async.bulk; sm_90).
#pragma once
#include <cstdint>

namespace sluice::kernels::cuda {

__device__ inline uint32_t shared_address(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }

__device__ inline void barrier_init(uint64_t* b, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(b)), "r"(arrivals) : "memory");
}
// After barriers were made, before other threads or copies use them (a block's barrier comes after it).
__device__ inline void barriers_made() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }
__device__ inline void barrier_arrive(uint64_t* b) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(b)) : "memory");
}
// Arrives, and the phase will not end before these many bytes of copies have landed.
__device__ inline void barrier_expect(uint64_t* b, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes) : "memory");
}
// Waits for the end of the phase of this parity (0: the first).
__device__ inline void barrier_wait(uint64_t* b, uint32_t parity) {
  asm volatile(
      "{ .reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again; }" ::"r"(shared_address(b)), "r"(parity) : "memory");
}
// bytes and both addresses: multiples of 16.
__device__ inline void copy_bulk(void* to, const void* from, uint32_t bytes, uint64_t* b) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared_address(to)), "l"(from),
               "r"(bytes), "r"(shared_address(b)) : "memory");
}
// Asks the second-level cache for bytes.
__device__ inline void fetch_to_cache(const void* from, uint32_t bytes) {
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}
// A barrier of the first `threads` threads of a block.
template <int threads>
__device__ inline void meet() { asm volatile("bar.sync 1, %0;" ::"n"(threads) : "memory"); }

}  // namespace sluice::kernels::cuda
