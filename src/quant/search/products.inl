// Products of rows, four by four at a time, once for every instruction set (products_*.cpp), with fused multiply-adds where it has them.
#include "quant/search/lanes.inl"

namespace sluice::quant {
namespace {

// Rows of a and b past the last are the last once more; their sums are not stored.
void four_by_four(float* c, size_t c_stride, const float* a, size_t a_stride, const float* b, size_t b_stride, int m, int n, int k, float sign) {
  const float *ar[4], *br[4];
  for (int i = 0; i < 4; ++i) {
    ar[i] = a + size_t(i < m ? i : m - 1) * a_stride;
    br[i] = b + size_t(i < n ? i : n - 1) * b_stride;
  }
  V sums[4][4] = {};
  int p = 0;
  for (; p + kLanes <= k; p += kLanes) {
    const V b0 = load(br[0] + p), b1 = load(br[1] + p), b2 = load(br[2] + p), b3 = load(br[3] + p);
    for (int i = 0; i < 4; ++i) {
      const V x = load(ar[i] + p);
      sums[i][0] += x * b0;
      sums[i][1] += x * b1;
      sums[i][2] += x * b2;
      sums[i][3] += x * b3;
    }
  }
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      float s = sum_of(sums[i][j]);
      for (int r = p; r < k; ++r) s += ar[i][r] * br[j][r];
      c[size_t(i) * c_stride + size_t(j)] += sign * s;
    }
}

constexpr int kRowsOfB = 64, kDepth = 1024;  // of b: what stays in the second-level cache while rows of a pass

void add_products(float* c, size_t c_stride, const float* a, size_t a_stride, const float* b, size_t b_stride, int m, int n, int k, float sign) {
  for (int p = 0; p < k; p += kDepth)
    for (int j0 = 0; j0 < n; j0 += kRowsOfB)
      for (int i = 0; i < m; i += 4)
        for (int j = j0; j < n && j < j0 + kRowsOfB; j += 4)
          four_by_four(c + size_t(i) * c_stride + size_t(j), c_stride, a + size_t(i) * a_stride + size_t(p), a_stride, b + size_t(j) * b_stride + size_t(p), b_stride,
                       m - i < 4 ? m - i : 4, n - j < 4 ? n - j : 4, k - p < kDepth ? k - p : kDepth, sign);
}

}  // namespace

void SLUICE_ADD_PRODUCTS(float* c, size_t c_stride, const float* a, size_t a_stride, const float* b, size_t b_stride, int m, int n, int k, float sign) {
  add_products(c, c_stride, a, a_stride, b, b_stride, m, n, k, sign);
}

}  // namespace sluice::quant
