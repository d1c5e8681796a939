// Speed of one backend's kernels: products by weight type and tokens, attention by shape, and the cost of a fork and join.
//   kernels_bench [avx512 | avx2 | reference] [threads] [rows] [cols]
//   kernels_bench --device cuda [8b] [135m] [f16] [quants] [attention]   (device_bench.cpp)
// Times are the best of many runs with warm caches where the data fit; "cold" runs go through weights larger than the
// caches, which is what decoding a token does. Threads: the pool's. Source of the method: none beyond a clock.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>
#include <vector>

#include "base/rng.h"
#include "bench/device_bench.h"
#include "kernels/abi.h"
#include "quant/weight_format.h"

namespace {

using namespace sluice;
using namespace sluice::kernels;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Seconds of the fastest of the calls that fit in the time.
template <class Fn>
double best_of(double seconds, Fn fn) {
  double best = 1e30;
  for (const double end = now() + seconds; now() < end;) {
    const double start = now();
    fn();
    best = std::min(best, now() - start);
  }
  return best;
}

struct Buffer {
  explicit Buffer(size_t n) : data(static_cast<uint8_t*>(std::aligned_alloc(64, (n + 63) / 64 * 64)), std::free) {}
  std::unique_ptr<uint8_t, void (*)(void*)> data;
};

void bench_linear(const KernelTable* t, Context* context, WeightType type, int rows, int cols) {
  const quant::WeightFormat* f = quant::find_format(type);
  const size_t bytes = t->packed_bytes(type, rows, cols);
  if (bytes == 0) return;
  // The byte 0x2A is a sane value or scale in every format.
  const std::vector<uint8_t> file(size_t(rows) * quant::row_bytes(*f, size_t(cols)), 0x2A);
  const size_t copies = std::max<size_t>(1, (size_t{96} << 20) / bytes);
  const Buffer memory(bytes * copies);
  for (size_t i = 0; i < copies; ++i) t->pack(type, rows, cols, file.data(), memory.data.get() + i * bytes, 0, rows);
  Rng rng(1);
  std::vector<float> x(size_t(512) * cols), y(size_t(512) * rows);
  for (float& v : x) v = rng.normalish();
  LinearArgs a;
  a.x = x.data();
  a.x_stride = cols;
  a.num_outputs = 1;
  const auto call = [&](int tokens, size_t copy) {
    a.num_tokens = tokens;
    a.out[0] = {{type, rows, cols, memory.data.get() + copy * bytes, bytes}, nullptr, y.data(), rows, false};
    t->linear(context, a);
  };
  const double cold = best_of(0.2, [&] {
    for (size_t i = 0; i < copies; ++i) call(1, i);
  });
  std::printf("%-5s cold T=1 %6.1f GB/s, warm GMAC/s:", f->name, double(bytes * copies) / cold * 1e-9);
  for (int tokens : {1, 2, 4, 8, 32, 512}) {
    const double s = best_of(0.05, [&] { call(tokens, 0); });
    std::printf("  T=%d %.0f", tokens, double(tokens) * rows * cols / s * 1e-9);
  }
  std::printf("\n");
}

void bench_attention(const KernelTable* t, Context* context, int tokens, int length, int heads, int kv_heads, int dim) {
  constexpr int kBlockTokens = 16;
  const int blocks = length / kBlockTokens;
  const size_t block_bytes = size_t(kv_heads) * kBlockTokens * dim * 2;
  std::vector<uint8_t> keys(block_bytes * blocks, 0x2A), values(keys);
  std::vector<float> q(size_t(tokens) * heads * dim, 0.5f), out(q.size());
  std::vector<int32_t> positions, sequence_of(tokens, 0), block_ids;
  for (int i = 0; i < tokens; ++i) positions.push_back(length - tokens + i);
  for (int i = 0; i < blocks; ++i) block_ids.push_back(blocks - 1 - i);
  const int32_t query_begin[] = {0, tokens}, kv_len[] = {length}, block_begin[] = {0, blocks};
  AttentionArgs a;
  a.batch = {tokens, 1, positions.data(), sequence_of.data(), query_begin, kv_len, block_begin, block_ids.data(),
             kBlockTokens};
  a.cache = {DType::kF16, keys.data(), values.data(), block_bytes};
  a.q_heads = heads, a.kv_heads = kv_heads, a.head_dim = dim;
  a.q = q.data(), a.q_stride = heads * dim;
  a.scale = 0.125f;
  a.out = out.data(), a.out_stride = heads * dim;
  const double s = best_of(0.2, [&] { t->attention(context, a); });
  double macs = 0;
  for (int32_t p : positions) macs += 2.0 * (p + 1) * heads * dim;
  std::printf("attention T=%d of %d, %d/%d heads of %d: %.1f us, %.1f GMAC/s, cache %.1f GB/s\n", tokens, length, heads,
              kv_heads, dim, s * 1e6, macs / s * 1e-9, 2.0 * block_bytes * blocks / s * 1e-9);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view name = argc > 1 ? argv[1] : "";
  if (name == "--device" && argc > 2 && std::string_view(argv[2]) == "cuda") return bench::device_bench(argc - 3, argv + 3);
  const char* why = nullptr;
  const KernelTable* t = name == "reference" ? reference_kernels() : cpu_kernels(argc > 1 ? argv[1] : "", &why);
  if (!t) return std::fprintf(stderr, "kernels_bench: %s\n", why), 1;
  const int threads = argc > 2 ? std::atoi(argv[2]) : 2, rows = argc > 3 ? std::atoi(argv[3]) : 1536;
  const int cols = argc > 4 ? std::atoi(argv[4]) : 768;
  Context* context = t->create({.threads = threads, .pin = false, .max_tokens = 512, .max_dim = cols});
  if (!context) return std::fprintf(stderr, "kernels_bench: no memory\n"), 1;
  std::printf("%s, %d threads, weights of %d x %d\n", t->name, threads, rows, cols);
  for (const quant::WeightFormat* f : quant::formats_table()) bench_linear(t, context, f->type, rows, cols);
  bench_attention(t, context, 1, 512, 9, 3, 64);
  bench_attention(t, context, 1, 8192, 9, 3, 64);
  bench_attention(t, context, 512, 512, 9, 3, 64);
  bench_attention(t, context, 1, 4096, 12, 2, 128);
  const double fork = best_of(0.2, [&] { t->parallel_for(context, 2 * threads, [](void*, int) noexcept {}, nullptr); });
  std::printf("fork and join: %.2f us\n", fork * 1e6);
  t->destroy(context);
}
