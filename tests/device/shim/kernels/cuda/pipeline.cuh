// kernels/cuda/pipeline.cuh on the emulator.
#pragma once
#include <cuda.h>
#include <cuda_runtime.h>

#include <tuple>

#include "kernels/cuda/hopper.cuh"

namespace sluice::kernels::cuda {

inline constexpr struct {
  operator uint8_t*() const { return emulator::shared(); }
} dynamic_shared_bytes;
inline uint8_t* dynamic_shared() { return dynamic_shared_bytes; }
inline uint32_t shared_address(const void* p) { return emulator::address_of(p); }
inline void fetch_line(const void* from) { std::ignore = *static_cast<const volatile uint8_t*>(from); }  // a fault where there is no memory
inline uint64_t policy_once() { return 0; }
inline void copy_once(uint32_t to, const void* from, uint64_t) { emulator::copy_begin(to, from, 16); }
template <int bytes> void copy_few(uint32_t to, const void* from) { emulator::copy_begin(to, from, bytes); }
inline void copy_or_zeros(uint32_t to, const void* from, bool there) { emulator::copy_begin(to, there ? from : nullptr, 16); }
inline void copies_commit() { emulator::copies_commit(); }
template <int left> void copies_wait() { emulator::copies_wait(left); }
inline void copies_wait_all() { emulator::copies_wait_all(); }
inline uint4 load_once16(const void* p) { return __ldcg(static_cast<const uint4*>(p)); }
inline uint2 load_once8(const void* p) { return __ldcg(static_cast<const uint2*>(p)); }
inline void let_next_begin() {}
inline void wait_for_previous() { if constexpr (kHopper) emulator::wait_for_ahead(); }
template <int threads> void meet() { emulator::meet_some(1, threads); }

inline void barrier_init(uint64_t* b, int arrivals) { emulator::barrier_init(shared_address(b), arrivals); }
inline void barrier_wait(uint64_t* b, int parity) { emulator::barrier_wait(shared_address(b), parity); }
inline void barrier_arrive(uint64_t* b) { emulator::barrier_arrive(shared_address(b), 0); }
inline void barrier_expect(uint64_t* b, uint32_t bytes) { emulator::barrier_arrive(shared_address(b), bytes); }
inline void copy_stretch(uint32_t, const void*, uint32_t, uint64_t*) { throw std::runtime_error("a copy that is not emulated"); }
inline void copy_tile(uint32_t to, const void* map, int column, int row, uint64_t* b) {
  emulator::copy(0, to, *static_cast<const CUtensorMap*>(map), column, row, shared_address(b));
}
template <int n> void registers_give() {}
template <int n> void registers_take() {}

}  // namespace sluice::kernels::cuda
