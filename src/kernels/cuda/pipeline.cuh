// Instructions that reach memory or other threads: shared memory's addresses, copies to it, barriers of some of a block's threads, and asking the cache for what
// will be read.
#pragma once
#include <cstdint>

#include "kernels/cuda/hopper.cuh"

namespace sluice::kernels::cuda {

// The shared memory that a launch asks for. (As a pointer; the array itself is only for whom the compiler makes better code of it.)
extern __shared__ __align__(128) uint8_t dynamic_shared_bytes[];
__device__ inline uint8_t* dynamic_shared() { return dynamic_shared_bytes; }
__device__ inline uint32_t shared_address(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }

// Asks the second-level cache for the line of 128 bytes that this is in.
__device__ inline void fetch_line(const void* from) { asm volatile("prefetch.global.L2 [%0];" ::"l"(from) : "memory"); }
// Copies of 16 bytes to shared memory of what is read once: it leaves the cache before what other kernels asked it for.
__device__ inline uint64_t policy_once() {
  uint64_t policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
__device__ inline void copy_once(uint32_t to, const void* from, uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint.L2::256B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "l"(policy) : "memory");
}
// Of 4 or 8 bytes, by the first-level cache.
template <int bytes>
__device__ inline void copy_few(uint32_t to, const void* from) { asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(to), "l"(from), "n"(bytes) : "memory"); }
// Of 16 bytes, which are zeros where there is nothing to copy.
__device__ inline void copy_or_zeros(uint32_t to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}
// A thread's copies since the last commit become a group; it waits for all but the newest `left` groups, or for all copies.
__device__ inline void copies_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int left>
__device__ inline void copies_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory"); }
__device__ inline void copies_wait_all() { asm volatile("cp.async.wait_all;" ::: "memory"); }
// Loads past the first-level cache of what is read once.
__device__ inline uint4 load_once16(const void* p) {
  uint4 v;
  asm volatile("ld.global.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}
__device__ inline uint2 load_once8(const void* p) {
  uint2 v;
  asm volatile("ld.global.L1::no_allocate.L2::128B.v2.u32 {%0,%1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
  return v;
}
// What launch.cuh says; nothing below 9.0.
__device__ inline void let_next_begin() {
  if constexpr (kHopper) asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
__device__ inline void wait_for_previous() {
  if constexpr (kHopper) asm volatile("griddepcontrol.wait;" ::: "memory");
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
// An arrival that also says how many bytes of copies are to come before the phase ends.
__device__ inline void barrier_expect(uint64_t* b, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(b)), "r"(bytes) : "memory");
}
// One thread copies a box of a matrix (tensor_map.h), beginning at this column and eight of rows; the barrier is told when its bytes are there.
__device__ inline void copy_box(uint32_t to, const void* map, int column, int eight, uint64_t* b) {
  asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %3, %4}], [%5];" ::"r"(to), "l"(map),
               "r"(column), "r"(0), "r"(eight), "r"(shared_address(b))
               : "memory");
}
// The same of a box of rows, 64 columns wide, from this column and row on.
__device__ inline void copy_tile(uint32_t to, const void* map, int column, int row, uint64_t* b) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to), "l"(map), "r"(column),
               "r"(row), "r"(shared_address(b))
               : "memory");
}
// And of bytes that lie together; all of them multiples of 16.
__device__ inline void copy_stretch(uint32_t to, const void* from, uint32_t bytes, uint64_t* b) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to), "l"(from), "r"(bytes),
               "r"(shared_address(b))
               : "memory");
}
// Some of a block's threads take turns: `threads` of both sides pass a barrier of the hardware, which one side waits at and the other
// only announces itself to.
template <int threads>
__device__ inline void turn_wait(int barrier) { asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(threads) : "memory"); }
template <int threads>
__device__ inline void turn_pass(int barrier) { asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"(threads) : "memory"); }
// Four matrices of 8 x 8 halves from shared memory, each lane giving the place of a row: the left factor of a product of 16 x 16.
__device__ inline void load_matrices(uint32_t (&to)[4], uint32_t row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(row)
               : "memory");
}
// How many registers each thread of this warpgroup has from here on.
template <int n> __device__ inline void registers_give() { asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(n)); }
template <int n> __device__ inline void registers_take() { asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(n)); }

}  // namespace sluice::kernels::cuda
