#include "lab/machine.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <functional>
#include <immintrin.h>
#include <thread>
#include <vector>

#include "tensor/buffer.h"

namespace sluice::lab {
namespace {

std::atomic<uint64_t> g_sink;  // results land here, so that no loop is dropped

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Best of a few timed rounds of all threads together; returns seconds.
double best_time(int threads, int rounds, const std::function<void(int)>& work) {
  double best = 1e9;
  for (int r = 0; r < rounds; ++r) {
    std::atomic<int> ready{0};
    std::atomic<bool> go{false};
    std::vector<std::thread> pool;
    for (int t = 1; t < threads; ++t)
      pool.emplace_back([&, t] {
        ready.fetch_add(1);
        while (!go.load(std::memory_order_acquire)) std::this_thread::yield();
        work(t);
      });
    while (ready.load() < threads - 1) std::this_thread::yield();
    const double begin = seconds();
    go.store(true, std::memory_order_release);
    work(0);
    for (auto& t : pool) t.join();
    best = std::min(best, seconds() - begin);
  }
  return best;
}

__attribute__((target("avx2"))) uint64_t read_all(const char* p, size_t bytes) {
  __m256i a[8];
  for (auto& v : a) v = _mm256_setzero_si256();
  // Asking ahead by hand: the hardware's own guesses stop at every page.
  for (size_t i = 0; i + 256 <= bytes; i += 256) {
    for (int j = 0; j < 4; ++j) __builtin_prefetch(p + i + 8192 + 64 * j);
    for (int j = 0; j < 8; ++j) a[j] = _mm256_xor_si256(a[j], _mm256_load_si256(reinterpret_cast<const __m256i*>(p + i) + j));
  }
  for (int j = 1; j < 8; ++j) a[0] = _mm256_xor_si256(a[0], a[j]);
  return uint64_t(_mm256_extract_epi64(a[0], 0));
}

// Each returns operations done; sixteen independent accumulators cover the latency of any current core.
constexpr int kAccumulators = 16;
constexpr int kLoops = 2'000'000;

__attribute__((target("avx512f"))) double f32_avx512() {
  __m512 a[kAccumulators];
  for (int j = 0; j < kAccumulators; ++j) a[j] = _mm512_set1_ps(float(j));
  const __m512 x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(0.001f);
  for (int i = 0; i < kLoops; ++i)
    for (auto& v : a) v = _mm512_fmadd_ps(v, x, y);
  for (int j = 1; j < kAccumulators; ++j) a[0] = _mm512_add_ps(a[0], a[j]);
  g_sink += uint64_t(_mm512_cvtss_f32(a[0]));
  return 2.0 * 16 * kAccumulators * kLoops;
}
__attribute__((target("avx2,fma"))) double f32_avx2() {
  __m256 a[kAccumulators - 4];
  for (int j = 0; j < kAccumulators - 4; ++j) a[j] = _mm256_set1_ps(float(j));
  const __m256 x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(0.001f);
  for (int i = 0; i < kLoops; ++i)
    for (auto& v : a) v = _mm256_fmadd_ps(v, x, y);
  for (int j = 1; j < kAccumulators - 4; ++j) a[0] = _mm256_add_ps(a[0], a[j]);
  g_sink += uint64_t(_mm256_cvtss_f32(a[0]));
  return 2.0 * 8 * (kAccumulators - 4) * kLoops;
}
__attribute__((target("avx512f,avx512vnni"))) double int8_vnni() {
  __m512i a[kAccumulators];
  for (int j = 0; j < kAccumulators; ++j) a[j] = _mm512_set1_epi32(j);
  const __m512i x = _mm512_set1_epi32(0x01020304), y = _mm512_set1_epi32(0x01010101);
  for (int i = 0; i < kLoops; ++i)
    for (auto& v : a) v = _mm512_dpbusd_epi32(v, x, y);
  for (int j = 1; j < kAccumulators; ++j) a[0] = _mm512_add_epi32(a[0], a[j]);
  g_sink += uint64_t(_mm512_cvtsi512_si32(a[0]));
  return 2.0 * 64 * kAccumulators * kLoops;
}
__attribute__((target("avx2"))) double int8_avx2() {
  __m256i a[kAccumulators - 4];
  for (int j = 0; j < kAccumulators - 4; ++j) a[j] = _mm256_set1_epi32(j);
  __m256i x = _mm256_set1_epi32(0x01020304);
  const __m256i y = _mm256_set1_epi32(0x01010101), ones = _mm256_set1_epi16(1);
  for (int i = 0; i < kLoops; ++i) {
    x = _mm256_xor_si256(x, y);  // keeps the product inside the loop
    for (auto& v : a) v = _mm256_add_epi32(v, _mm256_madd_epi16(_mm256_maddubs_epi16(x, _mm256_xor_si256(y, v)), ones));
  }
  for (int j = 1; j < kAccumulators - 4; ++j) a[0] = _mm256_add_epi32(a[0], a[j]);
  g_sink += uint64_t(_mm256_extract_epi64(a[0], 0));
  return 2.0 * 32 * (kAccumulators - 4) * kLoops;
}

double rate(int threads, double (*kernel)()) {
  std::atomic<double> operations{0};
  const double t = best_time(threads, 3, [&](int) { operations = kernel(); });
  return operations * threads / t * 1e-9;
}

// Idle and total jiffies of the whole machine.
void cpu_times(uint64_t& idle, uint64_t& total) {
  idle = total = 0;
  if (std::FILE* f = std::fopen("/proc/stat", "r")) {
    unsigned long v[8] = {};
    if (std::fscanf(f, "cpu %lu %lu %lu %lu %lu %lu %lu %lu", v, v + 1, v + 2, v + 3, v + 4, v + 5, v + 6, v + 7) == 8)
      for (int i = 0; i < 8; ++i) total += v[i];
    idle = v[3] + v[4];
    std::fclose(f);
  }
}

std::string cpu_name() {
  char line[256], name[200] = "unknown";
  if (std::FILE* f = std::fopen("/proc/cpuinfo", "r")) {
    while (std::fgets(line, sizeof line, f))
      if (std::sscanf(line, "model name : %199[^\n]", name) == 1) break;
    std::fclose(f);
  }
  return name;
}

}  // namespace

MachineCeilings measure_machine(int threads, size_t buffer_bytes) {
  MachineCeilings m;
  m.cpu = cpu_name();
  m.threads = threads;
  uint64_t idle0, total0, idle1, total1;
  cpu_times(idle0, total0);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  cpu_times(idle1, total1);
  if (total1 > total0) m.busy_fraction = 1.0 - double(idle1 - idle0) / double(total1 - total0);
  const size_t slice = buffer_bytes / size_t(threads) / 4096 * 4096;
  Buffer buffer(slice * size_t(threads));
  std::memset(buffer.data(), 1, buffer.bytes());
  const char* p = buffer.as<const char>();
  const double all = best_time(threads, 5, [&](int t) { g_sink += read_all(p + size_t(t) * slice, slice); });
  const double one = best_time(1, 5, [&](int) { g_sink += read_all(p, buffer.bytes()); });
  m.read_gb_s = double(buffer.bytes()) / all * 1e-9;
  m.read_gb_s_one = double(buffer.bytes()) / one * 1e-9;
  m.f32_gflop_s = rate(threads, __builtin_cpu_supports("avx512f") ? f32_avx512 : f32_avx2);
  m.int8_gop_s = rate(threads, __builtin_cpu_supports("avx512vnni") ? int8_vnni : int8_avx2);
  return m;
}

}  // namespace sluice::lab
