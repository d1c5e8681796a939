// What quantisation spends its time on, compiled for several instruction sets. The searches give the same results on all of them,
// bit for bit; products do not (fused multiply-adds), nor does what follows from them.
#pragma once
#include <cstddef>
#include <cstdint>

#include "quant/block_codes.h"

namespace sluice::quant {

constexpr int kLanes = 8;       // groups, or rows, that are worked on side by side
constexpr int kMaxGroup = 256;  // elements of a group of long_group

// Rows that are rounded one column after another, each column's error passed on to those that follow (error_feedback.h). n columns,
// in turn from the last to the first; arrays [n][kLanes] unless said.
struct RoundBlock {
  int n = 0;
  const float* upper = nullptr;   // the factor's square of these columns: row i at i * stride
  size_t stride = 0;
  const float* pull = nullptr;    // what columns beyond the block add
  const float* w = nullptr;
  const float *scale = nullptr, *offset = nullptr;
  const float *lo = nullptr, *hi = nullptr;  // [kLanes] least and largest level of each row
  const int8_t* codebook = nullptr;          // or nullptr
  bool e4m3 = false;              // levels are those of FP8 (base/fp8.h), whatever lo and hi say
  float *level = nullptr;         // out: levels, or values of the codebook or of FP8
  float *error = nullptr;         // out: w less what it became
};

// Rows of kSpan floats, or several times as many.
constexpr int kSpan = 64;

struct ProductKernels {
  // c[i][j] += sign * sum over k of a[i][k] * b[j][k], for i < m, j < n.
  void (*add)(float* c, size_t c_stride, const float* a, size_t a_stride, const float* b, size_t b_stride, int m, int n, int k, float sign);
  // c[i][k] = sum over j < n of a[i][j] * b[j][k], for i < m, k < count (a multiple of kSpan); c and b: [.., count].
  void (*combine)(float* c, const float* a, size_t a_stride, const float* b, int m, int n, int count);
  // Adds to sum the one of the vectors ([choices], stride apart) with which its square and the choice's cost are least. Returns which; -1:
  // none makes them less than the sum alone, which costs nothing.
  int (*shorten)(float* sum, const float* vectors, size_t stride, const float* costs, int choices, int count);
};

struct FitKernels {
  // Blocks with a scale of their own alone: count (1..kLanes) of them, x and weights [count, 32].
  void (*simple)(const BlockShape& shape, const float* x, const float* weights, int count, BlockCodes* out);
  // One block of 256 with integer scales.
  void (*super)(const BlockShape& shape, const float* x, const float* weights, BlockCodes& out);
  // Groups of n values (1..kMaxGroup) with a scale and a whole zero: value = scale * (level - zero), levels 0..2^bits - 1, scale exact in
  // f16. x: [n][kLanes], weights: [n], or nullptr: an element counts 1 + x^2 / mean x^2. symmetric: zero is
  // 2^(bits - 1); else at least 1.
  void (*long_group)(const float* x, const float* weights, int n, int bits, bool symmetric, float* scale, float* zero);
  void (*round_block)(const RoundBlock& block);
  const ProductKernels* products;
};

const FitKernels& fit_kernels();  // the best that this machine runs
// For tests: nullptr where the machine does not run it.
const FitKernels* fit_kernels_of(const char* isa);  // "base", "avx2", "avx512"

}  // namespace sluice::quant
