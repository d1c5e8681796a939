// Products of rows, a few by a few at a time, once for every instruction set (products_*.cpp), with fused multiply-adds where it has them.
// SLUICE_WIDE: floats of a register; SLUICE_ROWS_OF_A, _OF_B: of a tile, whose sums stay in registers.
#include "quant/search/fit_kernels.h"

namespace sluice::quant {
namespace {

typedef float Wide __attribute__((vector_size(4 * SLUICE_WIDE)));
constexpr int kTileA = SLUICE_ROWS_OF_A, kTileB = SLUICE_ROWS_OF_B;

[[gnu::always_inline]] inline Wide load_wide(const float* p) {
  Wide v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}

// Rows of a and b past the last are the last once more; their sums are not stored.
void tile(float* c, size_t c_stride, const float* a, size_t a_stride, const float* b, size_t b_stride, int m, int n, int k, float sign) {
  const float *ar[kTileA], *br[kTileB];
  for (int i = 0; i < kTileA; ++i) ar[i] = a + size_t(i < m ? i : m - 1) * a_stride;
  for (int j = 0; j < kTileB; ++j) br[j] = b + size_t(j < n ? j : n - 1) * b_stride;
  Wide sums[kTileA][kTileB] = {};
  int p = 0;
  for (; p + SLUICE_WIDE <= k; p += SLUICE_WIDE) {
    Wide y[kTileB];
    for (int j = 0; j < kTileB; ++j) y[j] = load_wide(br[j] + p);
    for (int i = 0; i < kTileA; ++i) {
      const Wide x = load_wide(ar[i] + p);
      for (int j = 0; j < kTileB; ++j) sums[i][j] += x * y[j];
    }
  }
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < n; ++j) {
      float s = 0;
      for (int l = 0; l < SLUICE_WIDE; ++l) s += sums[i][j][l];
      for (int r = p; r < k; ++r) s += ar[i][r] * br[j][r];
      c[size_t(i) * c_stride + size_t(j)] += sign * s;
    }
}

constexpr int kRowsOfB = 60, kDepth = 1024;  // of b: what stays in the second-level cache while rows of a pass

void add_products(float* c, size_t c_stride, const float* a, size_t a_stride, const float* b, size_t b_stride, int m, int n, int k, float sign) {
  for (int p = 0; p < k; p += kDepth)
    for (int j0 = 0; j0 < n; j0 += kRowsOfB)
      for (int i = 0; i < m; i += kTileA)
        for (int j = j0; j < n && j < j0 + kRowsOfB; j += kTileB)
          tile(c + size_t(i) * c_stride + size_t(j), c_stride, a + size_t(i) * a_stride + size_t(p), a_stride, b + size_t(j) * b_stride + size_t(p), b_stride,
               m - i < kTileA ? m - i : kTileA, n - j < kTileB ? n - j : kTileB, k - p < kDepth ? k - p : kDepth, sign);
}

void store_wide(float* p, Wide v) { __builtin_memcpy(p, &v, sizeof v); }

constexpr int kWides = SLUICE_WIDE == 16 ? 4 : 2;  // of a tile of combined rows
static_assert(kSpan % (kWides * SLUICE_WIDE) == 0);

void combine(float* c, const float* a, size_t a_stride, const float* b, int m, int n, int count) {
  for (int i = 0; i < m; i += kTileA)
    for (int k = 0; k < count; k += kWides * SLUICE_WIDE) {
      const float* ar[kTileA];
      for (int r = 0; r < kTileA; ++r) ar[r] = a + size_t(i + r < m ? i + r : m - 1) * a_stride;
      Wide sums[kTileA][kWides] = {};
      for (int j = 0; j < n; ++j)
        for (int w = 0; w < kWides; ++w) {
          const Wide y = load_wide(b + size_t(j) * size_t(count) + size_t(k + w * SLUICE_WIDE));
          for (int r = 0; r < kTileA; ++r) sums[r][w] += ar[r][j] * y;
        }
      for (int r = 0; r < kTileA && i + r < m; ++r)
        for (int w = 0; w < kWides; ++w) store_wide(c + size_t(i + r) * size_t(count) + size_t(k + w * SLUICE_WIDE), sums[r][w]);
    }
}

float squared_length(const float* a, const float* b, int count) {  // of a + b; b: nullptr is nothing
  Wide s = {}, t = {};
  for (int k = 0; k < count; k += 2 * SLUICE_WIDE) {
    Wide x = load_wide(a + k), y = load_wide(a + k + SLUICE_WIDE);
    if (b) x += load_wide(b + k), y += load_wide(b + k + SLUICE_WIDE);
    s += x * x;
    t += y * y;
  }
  s += t;
  float sum = 0;
  for (int l = 0; l < SLUICE_WIDE; ++l) sum += s[l];
  return sum;
}

int shorten(float* sum, const float* vectors, size_t stride, const float* costs, int choices, int count) {
  float least = squared_length(sum, nullptr, count);
  int best = -1;
  for (int c = 0; c < choices; ++c)
    if (const float e = squared_length(sum, vectors + size_t(c) * stride, count) + costs[c]; e < least) least = e, best = c;
  if (best >= 0)
    for (int k = 0; k < count; k += SLUICE_WIDE) store_wide(sum + k, load_wide(sum + k) + load_wide(vectors + size_t(best) * stride + k));
  return best;
}

}  // namespace

extern const ProductKernels SLUICE_PRODUCTS{add_products, combine, shorten};

}  // namespace sluice::quant
