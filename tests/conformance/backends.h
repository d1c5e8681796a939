// What the conformance tests share: the backends of this machine, random weights in file layout, guarded buffers, and a
// small cache with a block table.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/half.h"
#include "base/rng.h"
#include "kernels/abi.h"
#include "quant/weight_format.h"

namespace sluice::kernels::testing {

inline std::vector<const KernelTable*> backends() {
  std::vector<const KernelTable*> all{reference_kernels()};
  for (const char* isa : {"avx2", "avx512"})
    if (const KernelTable* t = cpu_kernels(isa, nullptr)) all.push_back(t);
  return all;
}

struct ContextDeleter {
  const KernelTable* table;
  void operator()(Context* c) const { table->destroy(c); }
};
using ContextPtr = std::unique_ptr<Context, ContextDeleter>;
inline ContextPtr make_context(const KernelTable* t, int threads, int max_tokens = 64, int max_dim = 2048) {
  return ContextPtr(t->create({.threads = threads, .pin = false, .max_tokens = max_tokens, .max_dim = max_dim}), {t});
}

// A float buffer with known values on both sides; check() fails if a kernel wrote there.
class Guarded {
 public:
  explicit Guarded(size_t n, float fill = 0) : n_(n), data_(n + 2 * kGuard, fill) {
    for (size_t i = 0; i < kGuard; ++i) data_[i] = data_[kGuard + n + i] = kSentinel;
  }
  float* data() { return data_.data() + kGuard; }
  float& operator[](size_t i) { return data_[kGuard + i]; }
  size_t size() const { return n_; }
  void check() const {
    for (size_t i = 0; i < kGuard; ++i) {
      ASSERT_EQ(data_[i], kSentinel) << "written before the buffer";
      ASSERT_EQ(data_[kGuard + n_ + i], kSentinel) << "written after the buffer";
    }
  }

 private:
  static constexpr size_t kGuard = 64;
  static constexpr float kSentinel = 12345.678f;
  size_t n_;
  std::vector<float> data_;
};

inline std::vector<float> random_floats(Rng& rng, size_t n, float scale = 1) {
  std::vector<float> v(n);
  for (float& x : v) x = rng.normalish() * scale;
  return v;
}

// Random rows of a format: random bits for quants, sane scales.
inline std::vector<uint8_t> random_weight(Rng& rng, WeightType type, int rows, int cols) {
  const quant::WeightFormat* f = quant::find_format(type);
  std::vector<uint8_t> bytes(size_t(rows) * quant::row_bytes(*f, size_t(cols)));
  if (f->encode) {
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
      default: break;
    }
  }
  return bytes;
}

inline std::vector<float> decode_weight(WeightType type, const std::vector<uint8_t>& bytes, int rows, int cols) {
  std::vector<float> w(size_t(rows) * cols);
  quant::find_format(type)->decode(bytes.data(), w.data(), w.size());
  return w;
}

// A weight packed for one backend.
struct Packed {
  std::vector<uint8_t> memory;
  PackedWeight weight;
};
inline Packed pack_weight(const KernelTable* t, WeightType type, int rows, int cols, const std::vector<uint8_t>& bytes) {
  Packed p;
  const size_t n = t->packed_bytes(type, rows, cols);
  p.memory.assign(n + 64, 0xFF);
  void* data = p.memory.data();
  size_t space = n + 64;
  std::align(64, n, data, space);
  for (int r = 0; r < rows; r += 2 * t->pack_rows)  // in parts, as a loader does
    t->pack(type, rows, cols, bytes.data(), data, r, std::min(rows, r + 2 * t->pack_rows));
  p.weight = {type, rows, cols, data, n};
  return p;
}

constexpr WeightType kAllTypes[] = {WeightType::kF32, WeightType::kF16, WeightType::kBF16, WeightType::kQ4_0,
                                    WeightType::kQ4_1, WeightType::kQ5_0, WeightType::kQ5_1, WeightType::kQ8_0,
                                    WeightType::kQ4_K, WeightType::kQ5_K, WeightType::kQ6_K};

}  // namespace sluice::kernels::testing
