// Context of every backend here: the pool and scratch memory sized once, so that no call allocates. Scratch is not touched
// before it is used, so its size costs address space only. Plain data and out-of-line functions: safe to include in files
// compiled for one instruction set.
#pragma once
#include <cstddef>
#include <cstdint>

#include "kernels/abi.h"
#include "sample/scan.h"

namespace sluice::sample {
struct Scratch;
}

namespace sluice::kernels {

class ThreadPool;

constexpr int kMaxHeadDim = 256;
constexpr size_t kActBlockBytes = 52;  // a quantised block of 32: 32 bytes, two floats, three sums

struct Context {
  ThreadPool* pool;
  int threads, max_tokens, max_dim;
  uint8_t* act_quant;      // quantised inputs of one linear call
  float* act_float;        // its float inputs, for float weights
  uint32_t* act_pairs;     // its inputs as pairs of bfloat16, where such weights are multiplied in pairs
  float* partials;         // attention partial results
  size_t partials_floats;
  sample::Scratch* sampling;  // one a worker
};

size_t host_context_bytes(const ContextOptions&) noexcept;
Context* create_context(const ContextOptions&) noexcept;
void destroy_context(Context*) noexcept;

// fn(arg, i, worker) over the workers.
void run_tasks(Context*, int count, void (*fn)(void* arg, int i, int worker) noexcept, void* arg) noexcept;

// Do outputs of one call read its inputs in different orders (PackedWeight::input_order)? Then they cannot share prepared inputs.
bool orders_differ(const LinearArgs&) noexcept;
void one_output_at_a_time(Context*, const LinearArgs&, void (*linear)(Context*, const LinearArgs&) noexcept) noexcept;

// Table entries that need no instruction set of their own; the memory of every backend of the host.
void* host_allocate(int device, size_t bytes) noexcept;
void host_release(int device, void* memory, size_t bytes) noexcept;
uint64_t host_free_bytes(int device) noexcept;
bool host_load(int device, void* to, const void* from, size_t bytes) noexcept;
void host_copy(Context*, void* to, const void* from, size_t bytes) noexcept;
const char* host_synchronize(Context*) noexcept;
void host_mark(Context*, int number) noexcept;
const char* host_wait(Context*, int number) noexcept;
bool host_begin_graph(Context*) noexcept;  // there are none
Graph* host_end_graph(Context*) noexcept;
void host_launch_graph(Context*, Graph*) noexcept;
void sample_rows(Context*, const SampleArgs&, const sample::Scan&) noexcept;
void plain_sample_rows(Context*, const SampleArgs&) noexcept;
void gather_rows(Context*, const GatherArgs&) noexcept;
void embed_rows(Context*, const EmbedArgs&) noexcept;
bool any_cache_type(CacheType) noexcept;
void copy_block(Context*, const CopyBlockArgs&) noexcept;
void parallel_for(Context*, int n, void (*fn)(void* arg, int i) noexcept, void* arg) noexcept;

}  // namespace sluice::kernels
