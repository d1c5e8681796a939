// Blocks of a cluster: waiting for one another, and reaching each other's shared memory.
#pragma once
#include <cstdint>

#include "kernels/cuda/pipeline.cuh"

namespace sluice::kernels::cuda {

// By all threads of a cluster's blocks that have not ended.
__device__ inline void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ inline void cluster_arrive_relaxed() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
__device__ inline void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
// Makes barriers that this thread began visible to the cluster after its next barrier, which need publish nothing else.
__device__ inline void publish_barriers() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// The place in block `rank`'s shared memory that this one has at `address`.
__device__ inline uint32_t of_block(uint32_t address, int rank) {
  uint32_t there;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(address), "r"(rank));
  return there;
}
__device__ inline float4 read_of_block(uint32_t address, int rank) {
  float4 v;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "r"(of_block(address, rank)) : "memory");
  return v;
}
// Says that what this thread read may be written over; it publishes nothing to the other block (that takes a fence of the whole device, each time).
__device__ inline void barrier_arrive_at(uint64_t* b, int rank) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(of_block(shared_address(b), rank)) : "memory");
}
// copy_tile, to the same place of every block that has a bit in `blocks`; each block's own barrier is told of its bytes.
__device__ inline void copy_tile_to(uint16_t blocks, uint32_t to, const void* map, int column, int row, uint64_t* b) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(to), "l"(map),
               "r"(column), "r"(row), "r"(shared_address(b)), "h"(blocks)
               : "memory");
}

}  // namespace sluice::kernels::cuda
