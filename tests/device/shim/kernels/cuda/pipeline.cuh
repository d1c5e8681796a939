// kernels/cuda/pipeline.cuh on the emulator.
#pragma once
#include <cuda.h>
#include <cuda_runtime_api.h>

namespace sluice::kernels::cuda {

inline uint8_t* dynamic_shared() { return emulator::shared(); }
inline uint32_t shared_address(const void* p) { return emulator::address_of(p); }
inline void barrier_init(uint64_t* b, int arrivals) { emulator::barrier_init(shared_address(b), arrivals); }
inline void barrier_wait(uint64_t* b, int parity) { emulator::barrier_wait(shared_address(b), parity); }
inline void barrier_arrive(uint64_t* b) { emulator::barrier_arrive(shared_address(b), 0); }
inline void barrier_expect(uint64_t* b, uint32_t bytes) { emulator::barrier_arrive(shared_address(b), bytes); }
inline void copy_tile(uint32_t to, const void* map, int column, int row, uint64_t* b) {
  emulator::copy(0, to, *static_cast<const CUtensorMap*>(map), column, row, shared_address(b));
}
template <int threads> void meet() { emulator::meet_some(threads); }
template <int n> void registers_give() {}
template <int n> void registers_take() {}

}  // namespace sluice::kernels::cuda
