// Context of the CUDA backend: a stream, the inputs of one product, and the first error. Calls queue work on the stream and
// return; synchronize waits and reports. Host threads serve parallel_for alone.
#pragma once
#include <cuda_runtime_api.h>

#include "kernels/context.h"
#include "kernels/cuda/capability.h"

namespace sluice::kernels::cuda {

class Library;

constexpr size_t kPartTiles = 512, kPartFloats = 64 * 64;  // tiles of partial sums of a product, and their size
// Pairs of tickets (tickets.cuh): a launch takes the next, so that kernels which begin while others run do not meet.
constexpr int kTicketPairs = 64;
constexpr size_t kExpandedBytes = size_t{64} << 20;

struct CudaContext : Context {
  int device, processors;
  Capability can;
  cudaStream_t stream, copies;   // of kernels; of uploads beside them
  cudaEvent_t copied, marks[kMaxMarks];
  bool deterministic;
  Library* library;     // products of many tokens; nullptr where it is not to be had
  float* inputs;        // [max_tokens, max_dim]: what a prologue leaves (as floats, or as up to three parts of half their size)
  void* expanded;       // rows of a quantised weight as f16, for the library; nullptr without one
  float* parts;         // partial sums of a product whose columns several blocks share
  float* splits;        // partial results of attention (attention.h), and how many of each unit's have arrived
  int* arrivals;
  int* tickets;         // tickets.cuh
  void* opened;         // a quantised cache's keys and values as halves (attention_open.h)
  size_t opened_bytes;
  int next_tickets;
  cudaError_t error;    // the first; nothing is queued after it
  char error_text[256];
};

inline CudaContext* of(Context* c) { return static_cast<CudaContext*>(c); }

// Every call begins with begin() (false: there is nothing more to do) and ends with note(the last error).
inline bool begin(CudaContext* c) {
  if (c->error != cudaSuccess) return false;
  const cudaError_t e = cudaSetDevice(c->device);
  if (e != cudaSuccess) c->error = e;
  return e == cudaSuccess;
}
inline void note(CudaContext* c, cudaError_t e) {
  if (e != cudaSuccess && c->error == cudaSuccess) c->error = e;
}

const char* fault_text(CudaContext* c);  // of the first error; nullptr: none

size_t packed_bytes(WeightType type, int rows, int cols) noexcept;
void pack(WeightType type, int rows, int cols, const void* src, void* dst, int row_begin, int row_end) noexcept;
size_t packed_offset(WeightType type, int rows, int cols, int row) noexcept;
void embed(Context* c, const EmbedArgs& a) noexcept;
DType activations(const Context* c, const PackedWeight& w, int num_tokens) noexcept;
bool gates(const Context* c, const PackedWeight& gate, const PackedWeight& up, const PackedWeight& down, int num_tokens, DType* y) noexcept;
void linear(Context* c, const LinearArgs& a) noexcept;
void norm(Context* c, const NormArgs& a) noexcept;
void rope_append(Context* c, const RopeAppendArgs& a) noexcept;
void attention(Context* c, const AttentionArgs& a) noexcept;
void gather(Context* c, const GatherArgs& a) noexcept;
void copy_block(Context* c, const CopyBlockArgs& a) noexcept;
void sample_rows(Context* c, const SampleArgs& a) noexcept;
void prefetch(Context* c, void* to, const void* from, size_t bytes) noexcept;
void mark(Context* c, int number) noexcept;
const char* wait(Context* c, int number) noexcept;
bool begin_graph(Context* c) noexcept;
Graph* end_graph(Context* c) noexcept;
void launch_graph(Context* c, Graph* graph) noexcept;
void destroy_graph(Context* c, Graph* graph) noexcept;

}  // namespace sluice::kernels::cuda
