// Speed of the CUDA backend's kernels at the shapes of Llama-3.1-8B and SmolLM2-135M: microseconds, GB/s and TFLOP/s, and per
// cent of what this device was just measured to give (a copy of 2 GB, counting both directions; a bf16 product of 8,192^3 by
// the library). Times: calls are captured in a graph over enough copies of the data to defeat the cache, and the graph is
// replayed; the median of the replays over the calls in it. Data are random: zeros would draw less power.
#include "device.h"

#include <algorithm>
#include <cstdio>
#include <tuple>

#include "base/half.h"
#include "base/rng.h"
#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/products.h"

namespace sluice::bench {

double elapsed(const Device& d, const std::function<void()>& fn) {
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

namespace {

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
  if (wanted("layers"))
    for (WeightType type : {WeightType::kBF16, WeightType::kFp8_128}) bench_layer_products(d, kShapes[0], type, {32, 64, 128, 256, 512, 1024, 1200, 2048, 4096, 8192});
  if (wanted("beside")) bench_beside(d, kShapes[0], 2048, {400, 700, 1}), bench_beside(d, kShapes[0], 4096, {800, 700, 1});
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
