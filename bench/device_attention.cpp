// Attention of device_bench.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>

#include "base/half.h"
#include "base/rng.h"
#include "device.h"
#include "kernels/cuda/cuda_context.h"
#include "quant/cache_row.h"

namespace sluice::bench {
namespace {

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

constexpr int kBlockTokens = 16;

// What one step's attention reads and writes. call(i) computes it, over different copies of the cache in turn.
class StepAttention {
 public:
  StepAttention(const Device& d, const Shape& s, const std::vector<Sequences>& step, CacheElement type, DType activations);
  void call(int i) {
    const size_t at = cache_bytes_ * size_t(i % copies_);
    a_.cache = {{type_, type_}, keys_->data + at, values_->data + at, block_bytes_};
    d_.t->attention(d_.context, a_);
  }
  int tokens() const { return a_.batch.num_tokens; }
  int sequences() const { return a_.batch.num_sequences; }
  double bytes() const { return 2.0 * double(cache_bytes_) + double(tokens()) * a_.q_stride * 2 * double(dtype_bytes(a_.q.type)); }
  double flops() const { return 4.0 * pairs_ * a_.q_stride; }
  const std::string& what() const { return what_; }

 private:
  const Device& d_;
  CacheElement type_;
  std::vector<int32_t> query_begin_{0}, kv_len_;
  std::vector<std::unique_ptr<Memory>> arrays_;
  std::unique_ptr<Memory> keys_, values_, q_, out_;
  AttentionArgs a_;
  size_t block_bytes_, cache_bytes_;
  int copies_;
  double pairs_ = 0;
  std::string what_;
};

StepAttention::StepAttention(const Device& d, const Shape& s, const std::vector<Sequences>& step, CacheElement type, DType activations) : d_(d), type_(type) {
  std::vector<int32_t> positions, sequence_of, block_begin{0}, block_ids;
  int blocks = 0;
  for (const auto& [sequences, length, queries] : step) {
    const int per = (length + kBlockTokens - 1) / kBlockTokens;
    for (int i = 0; i < sequences; ++i) {
      for (int q = 0; q < queries; ++q) positions.push_back(length - queries + q), sequence_of.push_back(int(kv_len_.size()));
      query_begin_.push_back(int32_t(positions.size()));
      kv_len_.push_back(length);
      for (int b = 0; b < per; ++b) block_ids.push_back(blocks + b * sequences + (i * 7 + b) % sequences);
      block_begin.push_back(int32_t(block_ids.size()));
    }
    blocks += per * sequences;
    what_ += (what_.empty() ? "" : " + ") + std::to_string(sequences) + "x" + std::to_string(length);
  }
  const int T = int(positions.size());
  block_bytes_ = size_t(s.kv_heads) * kBlockTokens * cache_row_bytes(type, s.head_dim), cache_bytes_ = block_bytes_ * size_t(blocks);
  copies_ = std::clamp(int((size_t{100} << 20) / cache_bytes_), 1, 16);
  const auto put = [&](const std::vector<int32_t>& v) {
    arrays_.push_back(std::make_unique<Memory>(d, v.size() * 4));
    d.t->load(0, arrays_.back()->data, v.data(), v.size() * 4);
    return reinterpret_cast<const int32_t*>(arrays_.back()->data);
  };
  a_.batch = {T, int(kv_len_.size()), put(positions), put(sequence_of), put(query_begin_), put(kv_len_), put(block_begin), put(block_ids), kBlockTokens};
  a_.batch.host_query_begin = query_begin_.data(), a_.batch.host_kv_len = kv_len_.data();
  keys_ = std::make_unique<Memory>(d, cache_bytes_ * size_t(copies_)), values_ = std::make_unique<Memory>(d, cache_bytes_ * size_t(copies_));
  const std::vector<uint8_t> pattern = cache_pattern(s, type, kBlockTokens);
  keys_->fill(pattern);
  values_->fill(pattern);
  const size_t width = size_t(s.heads) * s.head_dim, number = size_t(dtype_bytes(activations));
  q_ = std::make_unique<Memory>(d, T * width * number), out_ = std::make_unique<Memory>(d, T * width * number);
  Rng rng(10);
  std::vector<float> floats(T * width);
  for (float& v : floats) v = rng.normalish();
  std::vector<uint16_t> halves;
  for (float v : floats) halves.push_back(activations == DType::kF16 ? float_to_half(v) : float_to_bf16(v));
  d.t->load(0, q_->data, number == 4 ? static_cast<const void*>(floats.data()) : halves.data(), floats.size() * number);
  a_.q_heads = s.heads, a_.kv_heads = s.kv_heads, a_.head_dim = s.head_dim;
  a_.q = {q_->data, activations}, a_.q_stride = int(width);
  a_.scale = 0.088f;
  a_.out = {out_->data, activations}, a_.out_stride = int(width);
  for (int32_t p : positions) pairs_ += p + 1;
}

}  // namespace

void bench_attention(const Device& d, const Shape& s, const std::vector<Sequences>& step, CacheElement type, DType activations) {
  StepAttention attention(d, s, step, type, activations);
  const int T = attention.tokens();
  const double us = time_of(d, T > 64 * attention.sequences() ? 4 : 16, [&](int i) { attention.call(i); });
  char name[64];
  std::snprintf(name, sizeof name, "%s %s attention %s", s.name, std::string(cache_element_name(type)).c_str(), attention.what().c_str());
  report(d, name, T, us, attention.bytes(), attention.flops());
}

void bench_beside(const Device& d, const Shape& s, int tokens, const Sequences& decodes) {
  constexpr int kLayers = 48;
  cuda::CudaContext* c = cuda::of(d.context);
  // Products come first wherever there is room, and attention where they leave some.
  int least = 0, most = 0;
  cudaDeviceGetStreamPriorityRange(&least, &most);
  cudaStream_t first, plain = c->stream;
  cudaStreamCreateWithPriority(&first, cudaStreamNonBlocking, most);
  Device other = d;
  other.context = d.t->create({.threads = 1, .pin = false, .max_tokens = 8192, .max_dim = 14336, .head_dim = s.head_dim, .max_context = 8192});
  if (!other.context) return void(std::fprintf(stderr, "no memory\n"));
  other.stream = cuda::of(other.context)->stream;
  const LayerProducts products(d, s, WeightType::kBF16, tokens);
  StepAttention attention(other, s, {decodes}, CacheElement::kF16, DType::kBF16);
  const auto run = [&](bool multiply, bool attend) {
    cudaEvent_t begun, done;
    cudaEventCreateWithFlags(&begun, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&done, cudaEventDisableTiming);
    Device timed = d;
    timed.stream = first;
    std::vector<double> times;
    for (int i = 0; i < 4; ++i)
      times.push_back(elapsed(timed, [&] {
        cudaEventRecord(begun, first);
        cudaStreamWaitEvent(other.stream, begun);
        for (int n = 0; n < kLayers; ++n) {
          if (multiply) products.all();
          if (attend) attention.call(n);
        }
        cudaEventRecord(done, other.stream);
        cudaStreamWaitEvent(first, done);
      }));
    for (const Device* x : {&d, &std::as_const(other)})
      if (const char* wrong = d.t->synchronize(x->context)) std::fprintf(stderr, "device fault: %s\n", wrong), std::exit(1);
    cudaEventDestroy(begun);
    cudaEventDestroy(done);
    std::sort(times.begin() + 1, times.end());
    return times[2] * 1000 / kLayers;
  };
  const auto say = [&](const char* what, double us) {
    std::printf("%-60s %9.2f us a layer\n", what, us);
    std::fflush(stdout);
  };
  c->stream = first;
  const int processors = c->processors;
  cuda::Library* library = c->library;
  std::printf("products of %d tokens beside attention of %s (%.0f MB)\n", tokens, attention.what().c_str(), attention.bytes() * 1e-6);
  say("attention alone", run(false, true));
  say("products alone, library", run(true, false));
  say("both at once, library", run(true, true));
  c->library = nullptr;
  for (int n : {processors, processors - 8, processors - 16, processors - 24, processors - 32}) {
    c->processors = n;
    const std::string on = " on " + std::to_string(n) + " processors";
    say(("products alone, own" + on).c_str(), run(true, false));
    say(("both at once, own" + on).c_str(), run(true, true));
  }
  c->processors = processors, c->library = library, c->stream = plain;
  cudaStreamDestroy(first);
  d.t->destroy(other.context);
}

}  // namespace sluice::bench
