// What the kernels' checks share: the backends of this machine, random weights in file layout, and guarded arrays in backend
// memory. A fault (no memory, a sentinel overwritten, a device's error) is thrown as std::runtime_error; run_case catches it.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/half.h"
#include "base/rng.h"
#include "kernels/abi.h"
#include "quant/fp8_scales.h"
#include "quant/weight_format.h"

namespace sluice::lab {

using namespace kernels;

inline std::vector<const KernelTable*> backends() {
  std::vector<const KernelTable*> all{reference_kernels()};
  for (const char* isa : kCpuIsas)
    if (const KernelTable* t = cpu_kernels(isa, nullptr)) all.push_back(t);
  if (const KernelTable* t = cuda_kernels(0, nullptr)) all.push_back(t);
  const char* only = std::getenv("SLUICE_BACKEND");  // one of them by name
  if (only) std::erase_if(all, [&](const KernelTable* t) { return std::string(t->name) != only; });
  return all;
}

struct ContextDeleter {
  const KernelTable* table;
  void operator()(Context* c) const { table->destroy(c); }
};
using ContextPtr = std::unique_ptr<Context, ContextDeleter>;
// Deterministic by default: what the bitwise contract is held against.
inline ContextPtr make_context(const KernelTable& t, int threads, int max_tokens = 64, int max_dim = 2048, bool deterministic = true,
                               bool library = true) {
  Context* c = t.create({.threads = threads, .pin = false, .max_tokens = max_tokens, .max_dim = max_dim,
                         .device = t.device, .deterministic = deterministic, .library = library, .cache_type = {CacheElement::kInt8, CacheElement::kInt8},
                         .head_dim = 256, .max_context = 8192});
  if (!c) throw std::runtime_error("no context");
  return ContextPtr(c, {&t});
}

// An array in backend memory with known bytes on both sides; read() fails if a kernel wrote there. A host's is on the heap,
// where the address sanitizer sees both ends.
template <class T>
class OnBackend {
 public:
  OnBackend(const KernelTable& table, const T* from, size_t n) : t_(&table), n_(n) {
    const KernelTable* t = t_;
    std::vector<uint8_t> bytes(total(), kSentinel);
    if (n > 0) std::memcpy(bytes.data() + kGuard, from, n * sizeof(T));
    memory_ = static_cast<uint8_t*>(t->host_memory ? std::aligned_alloc(64, (total() + 63) / 64 * 64) : t->allocate(t->device, total()));
    if (t->host_memory) std::memcpy(memory_, bytes.data(), total());
    else if (!memory_ || !t->load(t->device, memory_, bytes.data(), total())) throw std::runtime_error("no memory on the device");
  }
  OnBackend(const KernelTable& t, const std::vector<T>& from) : OnBackend(t, from.data(), from.size()) {}
  OnBackend(OnBackend&& o) noexcept : t_(o.t_), n_(o.n_), memory_(std::exchange(o.memory_, nullptr)) {}
  OnBackend& operator=(OnBackend&&) = delete;
  ~OnBackend() {
    if (t_->host_memory) std::free(memory_);
    else if (memory_) t_->release(t_->device, memory_, total());
  }
  T* data() const { return reinterpret_cast<T*>(memory_ + kGuard); }
  size_t size() const { return n_; }
  // What kernels left, once they are done.
  std::vector<T> read(Context* context) const {
    std::vector<uint8_t> bytes(total());
    t_->download(context, bytes.data(), memory_, total());
    if (const char* wrong = t_->synchronize(context)) throw std::runtime_error(wrong);
    for (size_t i = 0; i < kGuard; ++i)
      if (bytes[i] != kSentinel || bytes[kGuard + n_ * sizeof(T) + i] != kSentinel) throw std::runtime_error("written outside an array");
    std::vector<T> out(n_);
    if (n_ > 0) std::memcpy(out.data(), bytes.data() + kGuard, n_ * sizeof(T));
    return out;
  }

 private:
  static constexpr size_t kGuard = 256;
  static constexpr uint8_t kSentinel = 0xA7;
  size_t total() const { return n_ * sizeof(T) + 2 * kGuard; }
  const KernelTable* t_;
  size_t n_;
  uint8_t* memory_ = nullptr;
};

inline std::vector<float> random_floats(Rng& rng, size_t n, float scale = 1) {
  std::vector<float> v(n);
  for (float& x : v) x = rng.normalish() * scale;
  return v;
}

// Floats as activations of a type, and back.
inline std::vector<uint8_t> as_type(DType type, const std::vector<float>& from) {
  std::vector<uint8_t> bytes(from.size() * size_t(dtype_bytes(type)));
  for (size_t i = 0; i < from.size(); ++i) {
    if (type == DType::kF32) {
      std::memcpy(&bytes[4 * i], &from[i], 4);
      continue;
    }
    const uint16_t h = type == DType::kF16 ? float_to_half(from[i]) : float_to_bf16(from[i]);
    std::memcpy(&bytes[2 * i], &h, 2);
  }
  return bytes;
}
inline std::vector<float> from_type(DType type, const std::vector<uint8_t>& bytes) {
  std::vector<float> out(bytes.size() / size_t(dtype_bytes(type)));
  for (size_t i = 0; i < out.size(); ++i) {
    uint16_t h = 0;
    if (type == DType::kF32) std::memcpy(&out[i], &bytes[4 * i], 4);
    else std::memcpy(&h, &bytes[2 * i], 2), out[i] = type == DType::kF16 ? half_to_float(h) : bf16_to_float(h);
  }
  return out;
}

// Random rows of a format: random bits for quants, sane scales.
inline std::vector<uint8_t> random_weight(Rng& rng, WeightType type, int rows, int cols) {
  const quant::WeightFormat* f = quant::find_format(type);
  std::vector<uint8_t> bytes(size_t(rows) * quant::row_bytes(*f, size_t(cols)));
  if (!f->scale_random) {
    const std::vector<float> w = random_floats(rng, size_t(rows) * cols, 0.05f);
    f->encode(w.data(), bytes.data(), w.size());
    return bytes;
  }
  for (uint8_t& b : bytes) b = uint8_t(rng.next_u32() >> 13);
  const auto put = [&](uint8_t* p, float v) { const uint16_t h = float_to_half(v); std::memcpy(p, &h, 2); };
  for (size_t at = 0; at < bytes.size(); at += size_t(f->block_bytes)) {
    uint8_t* p = bytes.data() + at;
    switch (type) {
      case WeightType::kQ4_0: case WeightType::kQ5_0: put(p, rng.normalish() * 0.01f); break;
      case WeightType::kQ8_0: put(p, rng.normalish() * 0.001f); break;
      case WeightType::kQ4_1: case WeightType::kQ5_1:
        put(p, rng.uniform() * 0.02f);
        put(p + 2, -rng.uniform() * 0.2f);
        break;
      case WeightType::kQ4_K: case WeightType::kQ5_K:
        put(p, rng.uniform() * 0.0005f);
        put(p + 2, rng.uniform() * 0.002f);
        break;
      case WeightType::kQ6_K: put(p + 208, rng.normalish() * 0.0001f); break;
      case WeightType::kInt4_32: case WeightType::kInt4_64: case WeightType::kInt4_128:
        put(p, rng.uniform() * 0.02f);
        p[2] = uint8_t(rng.below(16));
        break;
      case WeightType::kInt8_32: case WeightType::kInt8_64: case WeightType::kInt8_128: put(p, rng.uniform() * 0.001f); break;
      default: f->scale_random(p, 0.01f); break;
    }
  }
  return bytes;
}

inline std::vector<float> decode_weight(WeightType type, const std::vector<uint8_t>& bytes, int rows, int cols) {
  std::vector<float> w(size_t(rows) * cols);
  quant::find_format(type)->decode(bytes.data(), w.data(), w.size());
  return w;
}

// 0 where the arrays have the same bits, else infinity.
inline double bits_differ(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0 ? 0 : HUGE_VAL;
}
inline void keep_worst(double& worst, double e) {
  if (!(e <= worst)) worst = e;  // a NaN stays
}

// A weight packed for one backend, in its memory.
struct Packed {
  OnBackend<uint8_t> memory;
  OnBackend<float> scales;
  PackedWeight weight;
};
// The packed bytes, in parts, as a loader packs them.
inline std::vector<uint8_t> pack_rows(const KernelTable& t, WeightType type, int rows, int cols, const std::vector<uint8_t>& file) {
  std::vector<uint8_t> out(t.packed_bytes(type, rows, cols) + 64, 0xFF);
  uint8_t* aligned = out.data() + (64 - reinterpret_cast<uintptr_t>(out.data()) % 64) % 64;
  for (int r = 0; r < rows; r += 2 * t.pack_rows) t.pack(type, rows, cols, file.data(), aligned, r, std::min(rows, r + 2 * t.pack_rows));
  std::memmove(out.data(), aligned, out.size() - 64);
  out.resize(out.size() - 64);
  return out;
}
// row_scale: all blocks of a row of fp8 have one scale, and the backend is told.
inline Packed pack_weight(const KernelTable& t, WeightType type, int rows, int cols, const std::vector<uint8_t>& file, bool row_scale = false) {
  const std::vector<uint8_t> bytes = pack_rows(t, type, rows, cols, file);
  const bool apart = t.scales_apart && t.scales_apart(type);
  const int scale_cols = !apart ? 0 : row_scale ? cols : side_unit(type);
  std::vector<float> scales(apart ? size_t(rows) * size_t(cols / scale_cols) : 0);
  if (apart) quant::fp8_scales(type, file.data(), rows, cols, scale_cols, scales.data());
  Packed p{OnBackend<uint8_t>(t, bytes), OnBackend<float>(t, scales), {}};
  p.weight = {type, rows, cols, p.memory.data(), bytes.size()};
  if (apart) p.weight.scales = p.scales.data(), p.weight.scale_cols = scale_cols;
  return p;
}
// Gives all blocks of a row of fp8 the first one's scale.
inline void share_scales(WeightType type, int rows, int cols, std::vector<uint8_t>& file) {
  const size_t block = size_t(side_unit(type)) + 4, row = size_t(cols / side_unit(type)) * block;
  for (size_t r = 0; r < size_t(rows); ++r)
    for (size_t at = block; at < row; at += block) std::memcpy(file.data() + r * row + at, file.data() + r * row, 4);
}

constexpr WeightType kAllTypes[] = {WeightType::kF32, WeightType::kF16, WeightType::kBF16, WeightType::kQ4_0,
                                    WeightType::kQ4_1, WeightType::kQ5_0, WeightType::kQ5_1, WeightType::kQ8_0,
                                    WeightType::kQ2_K, WeightType::kQ3_K, WeightType::kQ4_K, WeightType::kQ5_K, WeightType::kQ6_K,
                                    WeightType::kIQ4_NL, WeightType::kIQ4_XS, WeightType::kInt4_32, WeightType::kInt4_64, WeightType::kInt4_128,
                                    WeightType::kInt8_32, WeightType::kInt8_64, WeightType::kInt8_128,
                                    WeightType::kFp8_32, WeightType::kFp8_64, WeightType::kFp8_128};

}  // namespace sluice::lab
