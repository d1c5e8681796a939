// Speed of the CUDA backend's kernels at the shapes of Llama-3.1-8B and SmolLM2-135M: microseconds, GB/s and TFLOP/s, and per
// cent of what this device was just measured to give (a copy of 2 GB, counting both directions; a bf16 product of 8,192^3 by
// the library). Times: calls are captured in a graph over enough copies of the data to defeat the cache, and the graph is
// replayed; the median of the replays over the calls in it. Data are random: zeros would draw less power.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <string_view>
#include <vector>

#include "base/half.h"
#include "base/rng.h"
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/library.h"
#include "kernels/cuda/products.h"
#include "quant/cache_row.h"
#include "quant/weight_format.h"

namespace sluice::bench {
namespace {

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

// Milliseconds that the device takes over what fn queues.
template <class Fn>
double elapsed(const Device& d, Fn fn) {
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  float ms = 0;
  cudaEventRecord(begin, d.stream);
  fn();
  cudaEventRecord(end, d.stream);
  cudaEventSynchronize(end);
  cudaEventElapsedTime(&ms, begin, end);
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return ms;
}

// Microseconds of one call(i), i counting up from 0 to calls - 1.
double time_of(const Device& d, int calls, const std::function<void(int)>& call) {
  call(0);  // choices and modules are loaded outside the graph
  if (const char* wrong = d.t->synchronize(d.context)) std::fprintf(stderr, "device fault: %s\n", wrong), std::exit(1);
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cudaStreamBeginCapture(d.stream, cudaStreamCaptureModeThreadLocal);
  for (int i = 0; i < calls; ++i) call(i);
  if (cudaStreamEndCapture(d.stream, &graph) != cudaSuccess || cudaGraphInstantiate(&exec, graph, 0) != cudaSuccess)
    std::fprintf(stderr, "no graph: %s\n", cudaGetErrorString(cudaGetLastError())), std::exit(1);
  std::vector<double> times;
  for (int i = 0; i < 7; ++i) {
    const double ms = elapsed(d, [&] { cudaGraphLaunch(exec, d.stream); });
    if (i >= 2) times.push_back(ms);
  }
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  if (const char* wrong = d.t->synchronize(d.context)) std::fprintf(stderr, "device fault: %s\n", wrong), std::exit(1);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2] * 1000.0 / calls;
}

void report(const Device& d, const char* what, int tokens, double us, double bytes, double flops) {
  std::printf("%-28s T=%-5d %9.2f us  %7.0f GB/s %5.1f %%  %7.1f TFLOP/s %5.1f %%\n", what, tokens, us, bytes / us * 1e-3,
              100 * bytes / us * 1e6 / d.bytes_per_second, flops / us * 1e-6, 100 * flops / us * 1e6 / d.flops);
  std::fflush(stdout);
}

void measure_machine(Device& d) {
  const size_t n = size_t{1} << 30;
  const Memory from(d, n), to(d, n);
  from.fill(d.noise);
  double copy = 1e30;
  for (int i = 0; i < 5; ++i) {  // not in a graph, where copies may go another way
    const double ms = elapsed(d, [&] { for (int j = 0; j < 8; ++j) cudaMemcpyAsync(to.data, from.data, n, cudaMemcpyDeviceToDevice, d.stream); });
    copy = std::min(copy, ms * 1000 / 8);
  }
  d.bytes_per_second = 2.0 * double(n) / copy * 1e6;
  std::printf("copy: %.0f GB/s\n", d.bytes_per_second * 1e-9);
  const auto library = cuda::Library::open();
  if (!library) return void(std::printf("no cublasLt on this machine: own kernels only\n"));
  const int size = 8192;
  // Halves near 1: noise of bytes would hold infinities.
  std::vector<uint16_t> halves(size_t{1} << 22);
  Rng rng(3);
  for (uint16_t& h : halves) h = float_to_bf16(rng.normalish() * 0.02f);
  const std::vector<uint8_t> pattern(reinterpret_cast<uint8_t*>(halves.data()), reinterpret_cast<uint8_t*>(halves.data() + halves.size()));
  const Memory x(d, size_t(size) * size * 2), w(d, size_t(size) * size * 2), y(d, size_t(size) * size * 4);
  x.fill(pattern);
  w.fill(pattern);
  const cuda::Output out{w.data, size_t(size) * 2, nullptr, y.floats(), size, size, false};
  const double product = time_of(d, 8, [&](int) { library->multiply(d.stream, WeightType::kBF16, x.data, size, size, size, out); });
  d.flops = 2.0 * size * size * size / product * 1e6;
  std::printf("bf16 product of 8,192^3: %.0f TFLOP/s\n", d.flops * 1e-12);
}

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
const Shape kShapes[] = {{"8b", 4096, 14336, 32, 8, 128, 128256}, {"135m", 576, 1536, 9, 3, 64, 49152}};

// Random rows of a type in file layout, a few megabytes to fill weights with.
std::vector<uint8_t> weight_pattern(WeightType type, int cols) {
  const quant::WeightFormat* f = quant::find_format(type);
  const size_t row = quant::row_bytes(*f, size_t(cols)), rows = std::max<size_t>(16, (size_t{4} << 20) / row / 16 * 16);
  std::vector<uint8_t> bytes(rows * row);
  Rng rng(5);
  if (f->encode) {
    std::vector<float> w(size_t(cols) * rows);
    for (float& v : w) v = rng.normalish() * 0.02f;
    f->encode(w.data(), bytes.data(), w.size());
    return bytes;
  }
  for (uint8_t& b : bytes) b = uint8_t(rng.next_u32() >> 13);
  const uint16_t scale = float_to_half(0.001f);
  for (size_t at = 0; at < bytes.size(); at += size_t(f->block_bytes)) {
    std::memcpy(&bytes[at + (type == WeightType::kQ6_K ? 208 : 0)], &scale, 2);
    if (type == WeightType::kQ4_1 || type == WeightType::kQ5_1 || type == WeightType::kQ4_K || type == WeightType::kQ5_K)
      std::memcpy(&bytes[at + 2], &scale, 2);
  }
  return bytes;
}

void bench_layer(const Device& d, const Shape& s, const Layer& l, WeightType type, const std::vector<int>& tokens) {
  const quant::WeightFormat* f = quant::find_format(type);
  int rows = 0;
  for (int r : l.rows) rows += r;
  const size_t bytes = d.t->packed_bytes(type, rows, l.cols), file_bytes = size_t(rows) * quant::row_bytes(*f, size_t(l.cols));
  if (!bytes) return;
  const int copies = int(std::clamp<size_t>((size_t{400} << 20) / bytes, 1, 32));
  const Memory weights(d, bytes * size_t(copies));
  const std::vector<uint8_t> pattern = weight_pattern(type, l.cols);
  const int pattern_rows = int(pattern.size() / quant::row_bytes(*f, size_t(l.cols)));
  std::vector<uint8_t> packed(d.t->packed_bytes(type, pattern_rows, l.cols));
  d.t->pack(type, pattern_rows, l.cols, pattern.data(), packed.data(), 0, pattern_rows);
  weights.fill(packed);
  const int most = *std::max_element(tokens.begin(), tokens.end()), x_cols = l.prologue == Prologue::kSiluMul ? 2 * l.cols : l.cols;
  const Memory x(d, size_t(most) * x_cols * 4), y(d, size_t(most) * rows * 4), norm(d, size_t(l.cols) * 4);
  std::vector<float> values(size_t{1} << 20);
  Rng rng(7);
  for (float& v : values) v = rng.normalish();
  const std::vector<uint8_t> floats(reinterpret_cast<uint8_t*>(values.data()), reinterpret_cast<uint8_t*>(values.data() + values.size()));
  x.fill(floats);
  norm.fill(floats);
  for (int T : tokens) {
    LinearArgs a;
    a.num_tokens = T;
    a.x = x.floats(), a.x_stride = x_cols;
    a.prologue = l.prologue, a.norm_weight = norm.floats(), a.eps = 1e-5f;
    a.num_outputs = int(l.rows.size());
    const auto call = [&](int i) {
      const uint8_t* w = weights.data + size_t(i % copies) * bytes;
      int row = 0;
      for (size_t o = 0; o < l.rows.size(); ++o) {
        const size_t part = d.t->packed_bytes(type, l.rows[o], l.cols);
        a.out[o] = {{type, l.rows[o], l.cols, w, part}, nullptr, y.floats() + row, rows, l.accumulate};
        w += part, row += l.rows[o];
      }
      d.t->linear(d.context, a);
    };
    const double us = time_of(d, T >= 512 ? 6 : 24, call);
    const std::string name = std::string(s.name) + " " + f->name + " " + l.name;
    report(d, name.c_str(), T, us, double(file_bytes) + double(T) * (x_cols + rows * (l.accumulate ? 2 : 1)) * 4, 2.0 * T * rows * l.cols);
  }
}

void bench_products(const Device& d, const Shape& s, WeightType type, const std::vector<int>& tokens) {
  for (const Layer& l : s.layers()) {
    std::vector<int> some;
    for (int T : tokens)
      if (T <= 512 || l.rows[0] != s.vocab) some.push_back(T);
    bench_layer(d, s, l, type, some);
  }
}

// Some blocks of a cache of this type with random numbers near 1.
std::vector<uint8_t> cache_pattern(const Shape& s, CacheElement type, int block_tokens) {
  constexpr int kBlocks = 64;
  Rng rng(9);
  std::vector<float> x(size_t(s.head_dim));
  std::vector<uint8_t> bytes, row(cache_row_bytes(type, s.head_dim));
  const auto codes = std::ptrdiff_t(cache_code_bytes(type, s.head_dim));
  for (int b = 0; b < kBlocks; ++b) {
    std::vector<uint8_t> scales;
    for (int r = 0; r < s.kv_heads * block_tokens; ++r) {
      for (float& v : x) v = rng.normalish();
      quant::encode_cache_row(type, x.data(), s.head_dim, row.data());
      bytes.insert(bytes.end(), row.begin(), row.begin() + codes);
      scales.insert(scales.end(), row.begin() + codes, row.end());
    }
    bytes.insert(bytes.end(), scales.begin(), scales.end());
  }
  return bytes;
}

// `sequences` of `length` tokens in the cache, the last `queries` of each in this step.
struct Sequences {
  int sequences, length, queries;
};
// Of one step; queries and results in `activations`.
void bench_attention(const Device& d, const Shape& s, const std::vector<Sequences>& step, CacheElement type = CacheElement::kF16, DType activations = DType::kF32) {
  constexpr int kBlockTokens = 16;
  std::vector<int32_t> positions, sequence_of, query_begin{0}, kv_len, block_begin{0}, block_ids;
  int blocks = 0;
  std::string what;
  for (const auto& [sequences, length, queries] : step) {
    const int per = (length + kBlockTokens - 1) / kBlockTokens;
    for (int i = 0; i < sequences; ++i) {
      for (int q = 0; q < queries; ++q) positions.push_back(length - queries + q), sequence_of.push_back(int(kv_len.size()));
      query_begin.push_back(int32_t(positions.size()));
      kv_len.push_back(length);
      for (int b = 0; b < per; ++b) block_ids.push_back(blocks + b * sequences + (i * 7 + b) % sequences);
      block_begin.push_back(int32_t(block_ids.size()));
    }
    blocks += per * sequences;
    what += (what.empty() ? "" : " + ") + std::to_string(sequences) + "x" + std::to_string(length);
  }
  const int T = int(positions.size());
  const size_t block_bytes = size_t(s.kv_heads) * kBlockTokens * cache_row_bytes(type, s.head_dim), cache_bytes = block_bytes * size_t(blocks);
  const int copies = std::clamp(int((size_t{100} << 20) / cache_bytes), 1, 16);
  std::vector<std::unique_ptr<Memory>> arrays;
  const auto put = [&](const std::vector<int32_t>& v) {
    arrays.push_back(std::make_unique<Memory>(d, v.size() * 4));
    d.t->load(0, arrays.back()->data, v.data(), v.size() * 4);
    return reinterpret_cast<const int32_t*>(arrays.back()->data);
  };
  AttentionArgs a;
  a.batch = {T, int(kv_len.size()), put(positions), put(sequence_of), put(query_begin), put(kv_len), put(block_begin), put(block_ids), kBlockTokens};
  a.batch.host_query_begin = query_begin.data(), a.batch.host_kv_len = kv_len.data();
  const Memory keys(d, cache_bytes * copies), values(d, cache_bytes * copies);
  const std::vector<uint8_t> pattern = cache_pattern(s, type, kBlockTokens);
  keys.fill(pattern);
  values.fill(pattern);
  const size_t width = size_t(s.heads) * s.head_dim;
  const size_t number = size_t(dtype_bytes(activations));
  const Memory q(d, T * width * number), out(d, T * width * number);
  Rng rng(10);
  std::vector<float> floats(T * width);
  for (float& v : floats) v = rng.normalish();
  std::vector<uint16_t> halves;
  for (float v : floats) halves.push_back(activations == DType::kF16 ? float_to_half(v) : float_to_bf16(v));
  d.t->load(0, q.data, number == 4 ? static_cast<const void*>(floats.data()) : halves.data(), floats.size() * number);
  a.q_heads = s.heads, a.kv_heads = s.kv_heads, a.head_dim = s.head_dim;
  a.q = {q.data, activations}, a.q_stride = int(width);
  a.scale = 0.088f;
  a.out = {out.data, activations}, a.out_stride = int(width);
  const double us = time_of(d, T > 64 * int(kv_len.size()) ? 4 : 16, [&](int i) {
    a.cache = {{type, type}, keys.data + cache_bytes * size_t(i % copies), values.data + cache_bytes * size_t(i % copies), block_bytes};
    d.t->attention(d.context, a);
  });
  double pairs = 0;
  for (int32_t p : positions) pairs += p + 1;
  char name[64];
  std::snprintf(name, sizeof name, "%s %s attention %s", s.name, std::string(cache_element_name(type)).c_str(), what.c_str());
  report(d, name, T, us, 2.0 * double(cache_bytes) + double(T) * double(width) * 2 * double(number), 4.0 * pairs * double(width));
}

}  // namespace
}  // namespace sluice::bench

// Words of part names run only those.
int main(int argc, char** argv) {
  using namespace sluice;
  using namespace sluice::bench;
  const char* why = nullptr;
  Device d{};
  d.t = cuda_kernels(0, &why);
  if (!d.t) return std::fprintf(stderr, "device_bench: %s\n", why), 1;
  d.context = d.t->create({.threads = 1, .pin = false, .max_tokens = 8192, .max_dim = 14336, .cache_type = {CacheElement::kFp8, CacheElement::kFp8},
                          .head_dim = 128, .max_context = 8192});
  if (!d.context) return std::fprintf(stderr, "device_bench: no memory\n"), 1;
  d.stream = cuda::of(d.context)->stream;
  d.noise.resize(size_t{16} << 20);
  Rng rng(1);
  for (uint8_t& b : d.noise) b = uint8_t(rng.next_u32() >> 13);
  const auto wanted = [&](std::string_view part) {
    bool any = argc < 2;
    for (int i = 1; i < argc; ++i) any |= part == argv[i];
    return any;
  };
  measure_machine(d);
  const std::vector<int> few{1, 2, 4, 8, 16}, many{32, 64, 128, 256, 2048};
  std::vector<int> all(few);
  all.insert(all.end(), many.begin(), many.end());
  if (wanted("8b")) bench_products(d, kShapes[0], WeightType::kBF16, all);
  if (wanted("own")) {  // without the library
    std::swap(cuda::of(d.context)->library, d.put_aside);
    bench_products(d, kShapes[0], WeightType::kBF16, {1, 2, 8});
    std::swap(cuda::of(d.context)->library, d.put_aside);
  }
  if (wanted("135m")) bench_products(d, kShapes[1], WeightType::kBF16, {1, 8, 32, 256});
  if (wanted("f16")) bench_products(d, kShapes[0], WeightType::kF16, {1, 128});
  if (wanted("quants"))
    for (WeightType type : {WeightType::kQ4_0, WeightType::kQ4_1, WeightType::kQ8_0, WeightType::kQ4_K, WeightType::kQ6_K}) {
      bench_products(d, kShapes[0], type, {1, 8, 16, 32, 64, 128, 256, 512, 2048});
      bench_products(d, kShapes[1], type, {1});
    }
  if (wanted("prompts"))  // as a server has them: queries and results in halves
    for (CacheElement type : {CacheElement::kF16, CacheElement::kBF16, CacheElement::kFp8, CacheElement::kInt8})
      for (const auto& [sequences, length, queries] : {std::tuple{1, 512, 512}, {1, 2048, 2048}, {1, 8192, 8192}, {4, 2048, 512}, {1, 8192, 2048}})
        bench_attention(d, kShapes[0], {{sequences, length, queries}}, type, DType::kBF16);
  if (wanted("mixed"))  // prompts' tokens beside decodes, and each alone
    for (const CacheElement type : {CacheElement::kF16, CacheElement::kFp8})
      for (const std::vector<Sequences>& step : {std::vector<Sequences>{{80, 1240, 1}}, {{1, 1200, 1200}}, {{80, 1240, 1}, {1, 1200, 1200}}, {{1, 2400, 1200}},
                                                 {{80, 1240, 1}, {1, 2400, 1200}}, {{80, 1240, 1}, {2, 900, 600}}, {{80, 1240, 1}, {1, 300, 300}}})
        bench_attention(d, kShapes[0], step, type, DType::kBF16);
  if (wanted("attention")) {
    for (const auto& [sequences, length, queries] : {std::tuple{1, 128, 1}, {1, 8192, 1}, {1, 8192, 5}, {32, 1024, 1}, {128, 1024, 1}, {256, 1280, 1},
                                                     {1, 2048, 2048}, {1, 8192, 8192}, {4, 2048, 512}})
      bench_attention(d, kShapes[0], {{sequences, length, queries}});
    bench_attention(d, kShapes[1], {{1, 128, 1}});
    bench_attention(d, kShapes[1], {{256, 256, 1}});
  }
  d.t->destroy(d.context);
  return 0;
}
