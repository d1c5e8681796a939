// kernels/cuda/cluster.cuh on the emulator.
#pragma once
#include <cstring>

#include "kernels/cuda/pipeline.cuh"

namespace sluice::kernels::cuda {

inline void cluster_arrive() { emulator::cluster_arrive(); }
inline void cluster_arrive_relaxed() { emulator::cluster_arrive(); }
inline void cluster_wait() { emulator::cluster_wait(); }
inline void publish_barriers() {}
inline float4 read_of_block(uint32_t address, int rank) {
  float4 v;
  std::memcpy(&v, emulator::at(emulator::of_block(address, rank)), sizeof v);
  return v;
}
inline void barrier_arrive_at(uint64_t* b, int rank) { emulator::barrier_arrive(emulator::of_block(shared_address(b), rank), 0); }
inline void copy_tile_to(uint16_t blocks, uint32_t to, const void* map, int column, int row, uint64_t* b) {
  emulator::copy(blocks, to, *static_cast<const CUtensorMap*>(map), column, row, shared_address(b));
}

}  // namespace sluice::kernels::cuda
