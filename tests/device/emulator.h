// Blocks of a device, on a host: enough of it to run kernels that are written against pipeline.cuh, cluster.cuh, wgmma.cuh and instructions.cuh, whose other
// versions in shim/ come here, as those of CUDA's own headers do. A device's threads take turns in an order that a seed decides; blocks, or clusters of them, run
// one after another. What runs beside threads there does so here: a copy by tensor map is done at any time after it was begun, a thread's own copy and what a
// product of a warpgroup reads at any time until it is waited for, and the kernel ahead ends at any time. So a stage that is freed too early, or read before it
// is there, gives wrong sums for some seed, and a wait for what never comes is an error. Shared memory begins as NaN, and has a guard behind it.
// Left out: what a fence orders, bank conflicts, speed. One host thread at a time.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>

namespace sluice::emulator {

struct TensorMap {  // rows of 16-bit elements; what a box has outside of them is zeros
  const uint8_t* data;
  size_t rows;
  int cols, stride, box_rows;
};

struct Index {
  unsigned x, y, z;
  constexpr Index(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct Launch {
  Index blocks;
  int cluster, threads;  // threads: whole warps
  size_t shared;
  uint64_t seed;
  std::function<void()> ahead_ends;  // what the kernel ahead writes; or none
};
// Runs `kernel` in every thread. Errors (runtime_error): nothing can go on; a barrier, a copy or a lane out of place; shared memory's guard is gone.
void run(const Launch& launch, const std::function<void()>& kernel);

// Of the thread that runs.
struct Place {
  Index thread, threads, block, blocks;
};
extern Place place;
uint8_t* shared();                       // of the block
uint32_t address_of(const void* p);      // of shared memory
uint8_t* at(uint32_t address);           // of this block or, by of_block, another
uint32_t of_block(uint32_t address, int rank);

void wait_for_ahead();
void meet_block();
void meet_some(int barrier, int threads);  // of the block, by a barrier from 1 to 15
void cluster_arrive();                     // and wait: all threads that have not ended
void cluster_wait();

// Lanes of a warp meet.
void meet_warp(uint32_t lanes = ~0u);
// And each brings something for the others. What lane i came with is at i * kMostTold of the result, until lanes meet again.
constexpr size_t kMostTold = 64;
struct Told {
  uint8_t* all;
  void* telling;
};
Told begin_to_tell(uint32_t lanes);
void meet_told(void* telling);
template <class T>
const uint8_t* tell(uint32_t lanes, const T& own) {
  static_assert(sizeof(T) <= kMostTold);
  const Told told = begin_to_tell(lanes);
  std::memcpy(told.all + place.thread.x % 32 * kMostTold, &own, sizeof own);
  meet_told(told.telling);
  return told.all;
}

void barrier_init(uint32_t barrier, int arrivals);
void barrier_arrive(uint32_t barrier, uint32_t more_bytes);
void barrier_wait(uint32_t barrier, int parity);
// To `to` of every block in `blocks`, whose barrier at this address is told; blocks 0: of this block alone.
void copy(uint32_t blocks, uint32_t to, const TensorMap& map, int column, int row, uint32_t barrier);

// A thread's own copies, in groups; from nullptr: zeros.
void copy_begin(uint32_t to, const void* from, int bytes);
void copies_commit();
void copies_wait(int left);
void copies_wait_all();

// `product` reads shared memory; it is called once, now or by the time that products are waited for.
void product_begin(std::function<void()> product);
void products_commit();
void products_wait(int left);
// Where piece c (16 bytes) of a row is in a panel that begins at a multiple of 1,024: the hardware turns addresses, whoever uses them.
uint32_t swizzled(uint32_t address);

}  // namespace sluice::emulator
