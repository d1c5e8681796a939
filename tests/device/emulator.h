// Blocks of one cluster of a device, on a host: enough of it to run kernels that are written against pipeline.cuh, cluster.cuh, wgmma.cuh and launch.cuh,
// whose other versions in shim/ come here. A device's threads take turns in an order that a seed decides. What runs beside threads there does so here: a copy
// by tensor map is done at any time after it was begun, a product of a warpgroup reads its factors at any time until it is waited for, and the kernel ahead ends
// at any time. So a stage that is freed too early, or read before it is there, gives wrong sums for some seed, and a wait for what never comes is an error.
// Left out: what a fence orders, bank conflicts, speed.
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace sluice::emulator {

struct TensorMap {  // rows of 16-bit elements; what a box has outside of them is zeros
  const uint8_t* data;
  size_t rows;
  int cols, stride, box_rows;
};

struct Launch {
  int blocks, cluster, threads;
  size_t shared;
  uint64_t seed;
  std::function<void()> ahead_ends;  // what the kernel ahead writes; or none
};
// Runs `kernel` in every thread. Errors (runtime_error): nothing can go on; a barrier or a copy out of place.
void run(const Launch& launch, const std::function<void()>& kernel);

// Of the thread that runs.
struct Place {
  int thread, threads, block, blocks;
};
const Place& place();
uint8_t* shared();                       // of the block
uint32_t address_of(const void* p);      // of shared memory
uint8_t* at(uint32_t address);           // of this block or, by of_block, another
uint32_t of_block(uint32_t address, int rank);

void wait_for_ahead();
void meet_warp();
void meet_block();
void meet_some(int threads);             // of the block, always the same ones
void cluster_arrive();                   // and wait: all threads that have not ended
void cluster_wait();
uint32_t shuffle_xor(uint32_t v, int bits);

void barrier_init(uint32_t barrier, int arrivals);
void barrier_arrive(uint32_t barrier, uint32_t more_bytes);
void barrier_wait(uint32_t barrier, int parity);
// To `to` of every block in `blocks`, whose barrier at this address is told; blocks 0: of this block alone.
void copy(uint32_t blocks, uint32_t to, const TensorMap& map, int column, int row, uint32_t barrier);

// `product` reads shared memory; it is called once, now or by the time that products are waited for.
void product_begin(std::function<void()> product);
void products_commit();
void products_wait(int left);
// Where piece c (16 bytes) of a row is in a panel that begins at a multiple of 1,024: the hardware turns addresses, whoever uses them.
uint32_t swizzled(uint32_t address);

}  // namespace sluice::emulator
