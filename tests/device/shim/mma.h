// Products of 16 x 8 by 8 x 16 in tf32. A warp's first lane has all of a matrix, and the others nothing.
#pragma once
#include "cuda_runtime.h"

namespace nvcuda::wmma {

struct matrix_a {};
struct matrix_b {};
struct accumulator {};
struct row_major {};
struct col_major {};
namespace precision { struct tf32 {}; }
enum layout_t { mem_row_major };

template <class Use, int m, int n, int k, class T, class Layout = void>
struct fragment {
  static constexpr int kRows = std::is_same_v<Use, matrix_b> ? k : m, kCols = std::is_same_v<Use, matrix_a> ? k : n;
  float v[kRows][kCols];
};

inline float __float_to_tf32(float v) { return std::bit_cast<float>((std::bit_cast<uint32_t>(v) + 0x1000) & ~0x1FFFu); }
template <class F>
void fill_fragment(F& f, float v) {
  for (auto& row : f.v)
    for (float& e : row) e = v;
}
template <class Use, int m, int n, int k, class T, class Layout>
void load_matrix_sync(fragment<Use, m, n, k, T, Layout>& f, const float* from, unsigned pitch) {
  __syncwarp();
  if (emulated_lane() != 0) return;
  for (int i = 0; i < f.kRows; ++i)
    for (int j = 0; j < f.kCols; ++j) f.v[i][j] = std::is_same_v<Layout, row_major> ? from[unsigned(i) * pitch + unsigned(j)] : from[unsigned(j) * pitch + unsigned(i)];
}
template <class D, class A, class B>
void mma_sync(D& d, const A& a, const B& b, const D& c) {
  if (emulated_lane() != 0) return;
  for (int i = 0; i < 16; ++i)
    for (int j = 0; j < 16; ++j) {
      float sum = c.v[i][j];
      for (int k = 0; k < 8; ++k) sum += a.v[i][k] * b.v[k][j];
      d.v[i][j] = sum;
    }
}
template <class D>
void store_matrix_sync(float* to, const D& d, unsigned pitch, layout_t) {
  if (emulated_lane() == 0)
    for (unsigned i = 0; i < 16; ++i) std::memcpy(to + i * pitch, d.v[i], sizeof d.v[i]);
  __syncwarp();
}

}  // namespace nvcuda::wmma
