// What a device gives, measured through its kernel table.
#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>

#include "kernels/backend_buffer.h"
#include "lab/machine.h"
#include "lab/on_backend.h"

namespace sluice::lab {
namespace {

constexpr int kDim = 8192;
constexpr size_t kCopyBytes = size_t{256} << 20;

// Seconds a call, the best of five rounds of ten.
double best_seconds(const KernelTable& t, Context* c, const std::function<void()>& call) {
  double best = 0;
  for (int round = 0; round < 6; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < 10; ++i) call();
    t.synchronize(c);
    const double s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() / 10;
    if (round > 0) best = best == 0 ? s : std::min(best, s);  // the first warms up
  }
  return best;
}

}  // namespace

MachineCeilings measure_device(const KernelTable& t) {
  MachineCeilings m;
  m.cpu = t.name;
  const ContextPtr context(t.create({.threads = 1, .pin = false, .max_tokens = kDim, .max_dim = kDim, .device = t.device, .deterministic = false}), {&t});
  const size_t weight_bytes = t.packed_bytes(WeightType::kBF16, kDim, kDim);
  const BackendBuffer keys(t, 2 * kCopyBytes), values(t, 2 * kCopyBytes), weight(t, weight_bytes), x(t, size_t(kDim) * kDim * 4), y(t, size_t(kDim) * kDim * 4);
  if (!context || !keys.ok() || !values.ok() || !weight.ok() || !x.ok() || !y.ok()) return m;
  const CacheView cache{CacheType{}, keys.data(), values.data(), kCopyBytes, kCopyBytes};
  m.read_gb_s = 4 * double(kCopyBytes) / best_seconds(t, context.get(), [&] { t.copy_block(context.get(), {cache, cache, 0, 1}); }) * 1e-9;
  // Random factors: zeros would draw less power.
  Rng rng(5);
  const std::vector<float> numbers = random_floats(rng, size_t(kDim) * 64);
  std::vector<uint16_t> halves;
  for (float v : numbers) halves.push_back(float_to_bf16(v));
  for (int i = 0; i < kDim; i += 64) {
    t.load(t.device, x.as<float>() + size_t(i) * kDim, numbers.data(), numbers.size() * 4);
    t.load(t.device, weight.as<uint16_t>() + size_t(i) * kDim, halves.data(), halves.size() * 2);
  }
  LinearArgs a;
  a.num_tokens = kDim;
  a.x = x.as<float>();
  a.x_stride = kDim;
  a.num_outputs = 1;
  a.out[0] = {{WeightType::kBF16, kDim, kDim, weight.data(), weight_bytes}, nullptr, y.as<float>(), kDim, false};
  m.bf16_gflop_s = 2.0 * kDim * kDim * kDim / best_seconds(t, context.get(), [&] { t.linear(context.get(), a); }) * 1e-9;
  return m;
}

}  // namespace sluice::lab
