#include "quant/fit.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "quant/search/fit_kernels.h"

namespace sluice::quant {

extern const FitKernels fit_kernels_base, fit_kernels_avx2;
extern const ProductKernels products_avx512;

const FitKernels* fit_kernels_of(const char* isa) {
  // Searches are the same eight lanes; products gain from wider ones.
  static const FitKernels avx512 = [] {
    FitKernels k = fit_kernels_avx2;
    k.products = &products_avx512;
    return k;
  }();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (std::strcmp(isa, "base") == 0) return &fit_kernels_base;
  if (std::strcmp(isa, "avx2") == 0 && avx2) return &fit_kernels_avx2;
  return std::strcmp(isa, "avx512") == 0 && avx2 && __builtin_cpu_supports("avx512f") ? &avx512 : nullptr;
}
const FitKernels& fit_kernels() {
  static const FitKernels& best = [] () -> const FitKernels& {
    for (const char* isa : {"avx512", "avx2"})
      if (const FitKernels* k = fit_kernels_of(isa)) return *k;
    return fit_kernels_base;
  }();
  return best;
}

namespace {

// What the error of each element of a block counts. Importances are relative to their mean, so that any unit of them will do, and none
// is quite zero. Without any: the larger weights of a block count more (see fit.h).
void element_weights(const float* x, const float* importance, float unit, int count, float* out) {
  if (importance) {
    for (int i = 0; i < count; ++i) out[i] = importance[i] * unit + 1e-4f;
    return;
  }
  float square = 0;
  for (int i = 0; i < count; ++i) square += x[i] * x[i];
  const float inverse = square > 1e-30f ? float(count) / square : 0;
  for (int i = 0; i < count; ++i) out[i] = 1 + x[i] * x[i] * inverse;
}

}  // namespace

namespace {

// What one unit of importance counts: its mean becomes 1.
float unit_of(const float* importance, size_t cols) {
  double sum = 0;
  for (size_t k = 0; importance && k < cols; ++k) sum += importance[k];
  return sum > 0 ? float(double(cols) / sum) : 0;
}

// The blocks of rows x cols values, a few at a time: sink(first block, count, codes).
template <class Sink>
void fit_blocks(const BlockShape& shape, const float* src, const float* importance, size_t rows, size_t cols, const Sink& sink) {
  const float unit = unit_of(importance, cols);
  const size_t elements = size_t(shape.elements), blocks = rows * cols / elements;
  const size_t batch = shape.integer_scales() ? 1 : kLanes;
  BlockCodes codes[kLanes];
  float weights[kMaxBlock];
  for (size_t b = 0; b < blocks; b += batch) {
    const size_t count = std::min(batch, blocks - b);
    for (size_t i = 0; i < count; ++i) {
      const size_t at = (b + i) * elements;
      element_weights(src + at, importance ? importance + at % cols : nullptr, unit, int(elements), weights + i * elements);
    }
    if (shape.integer_scales()) fit_kernels().super(shape, src + b * elements, weights, codes[0]);
    else fit_kernels().simple(shape, src + b * elements, weights, int(count), codes);
    sink(b, count, codes);
  }
}

}  // namespace

void fit_codes(const BlockShape& shape, const float* x, const float* importance, size_t count, BlockCodes* out) {
  fit_blocks(shape, x, importance, 1, count, [&](size_t b, size_t n, const BlockCodes* codes) { std::copy(codes, codes + n, out + b); });
}

void fit(const WeightFormat& f, const float* src, const float* importance, uint8_t* dst, size_t rows, size_t cols) {
  if (!f.shape) return f.encode(src, dst, rows * cols);
  fit_blocks(*f.shape, src, importance, rows, cols, [&](size_t b, size_t n, const BlockCodes* codes) {
    for (size_t i = 0; i < n; ++i) f.pack(codes[i], dst + (b + i) * size_t(f.block_bytes));
  });
}

size_t first_unfit(const float* x, size_t count) {
  for (size_t i = 0; i < count; ++i)
    if (!(std::fabs(x[i]) <= kLargestHalf)) return i;
  return count;
}

}  // namespace sluice::quant
