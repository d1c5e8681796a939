// What the parts of device_bench share: the device, its memory, timing and reporting, and the shapes.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "kernels/abi.h"
#include "kernels/cuda/library.h"

namespace sluice::bench {

using namespace sluice::kernels;

struct Device {
  const KernelTable* t;
  Context* context;
  cudaStream_t stream;
  cuda::Library* put_aside = nullptr;  // the library, while it is not to be used
  double bytes_per_second = 1, flops = 1;
  std::vector<uint8_t> noise;  // random bytes to fill memory with
};

struct Memory {
  const Device& d;
  size_t bytes;
  uint8_t* data;
  Memory(const Device& d, size_t bytes) : d(d), bytes(bytes), data(static_cast<uint8_t*>(d.t->allocate(0, bytes))) {
    if (!data) std::fprintf(stderr, "no room for %zu bytes\n", bytes), std::exit(1);
  }
  ~Memory() { d.t->release(0, data, bytes); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  float* floats() const { return reinterpret_cast<float*>(data); }
  void fill(const std::vector<uint8_t>& pattern) const {
    for (size_t at = 0; at < bytes; at += pattern.size()) d.t->load(0, data + at, pattern.data(), std::min(pattern.size(), bytes - at));
  }
};

// Milliseconds that the device takes over what fn queues on its stream.
double elapsed(const Device& d, const std::function<void()>& fn);
// Microseconds of one call(i), i counting up from 0 to calls - 1: the calls are captured in a graph, which is replayed; the median of the replays.
double time_of(const Device& d, int calls, const std::function<void(int)>& call);
// A line: microseconds, GB/s of the bytes that must move, TFLOP/s, and per cent of what the device gives.
void report(const Device& d, const char* what, int tokens, double us, double bytes, double flops);

struct Layer {
  const char* name;
  std::vector<int> rows;
  int cols;
  Prologue prologue;
  bool accumulate;
};
struct Shape {
  const char* name;
  int dim, ffn, heads, kv_heads, head_dim, vocab;
  std::vector<Layer> layers() const {
    return {{"qkv", {heads * head_dim, kv_heads * head_dim, kv_heads * head_dim}, dim, Prologue::kRmsNorm, false},
            {"o", {dim}, heads * head_dim, Prologue::kNone, true},
            {"gate+up", {ffn, ffn}, dim, Prologue::kRmsNorm, false},
            {"down", {dim}, ffn, Prologue::kSiluMul, true},
            {"head", {vocab}, dim, Prologue::kRmsNorm, false}};
  }
};
inline const Shape kShapes[] = {{"8b", 4096, 14336, 32, 8, 128, 128256}, {"135m", 576, 1536, 9, 3, 64, 49152}};

// Products as one call has them: float inputs, the prologue in the call.
void bench_products(const Device& d, const Shape& s, WeightType type, const std::vector<int>& tokens);
// A layer's products as a step of many tokens has them: halves between them, the gate in a product where the backend takes it.
class LayerProducts {
 public:
  LayerProducts(const Device& d, const Shape& s, WeightType type, int tokens);
  void qkv() const;
  void o() const;
  void feed_forward() const;
  void all() const { qkv(), o(), feed_forward(); }
  double qkv_flops() const { return flops(qkv_); }
  double o_flops() const { return flops(o_); }
  double feed_forward_flops() const { return flops(gate_) + flops(up_) + flops(down_); }

 private:
  double flops(const PackedWeight& w) const { return 2.0 * tokens_ * w.rows * w.cols; }
  const Device& d_;
  int tokens_, dim_, ffn_;
  DType half_;
  Memory weights_, scales_, normed_, attended_, queries_, gates_, residual_;
  PackedWeight qkv_, o_, gate_, up_, down_;
};
// Each of them and all, by the library and without it.
void bench_layer_products(const Device& d, const Shape& s, WeightType type, const std::vector<int>& tokens);

// `sequences` of `length` tokens in the cache, the last `queries` of each in this step.
struct Sequences {
  int sequences, length, queries;
};
// Of one step; queries and results in `activations`.
void bench_attention(const Device& d, const Shape& s, const std::vector<Sequences>& step, CacheElement type = CacheElement::kF16, DType activations = DType::kF32);
// A layer's products of many tokens beside the attention of many decodes, which needs no tensor cores: one after the other, and at once with fewer processors
// for the products.
void bench_beside(const Device& d, const Shape& s, int tokens, const Sequences& decodes);

}  // namespace sluice::bench
