// Vectors of kLanes floats, one lane a group, in whatever the instruction set has. Everything has internal linkage: files of
// different instruction sets include it.
#include <cmath>
#include <cstdint>

#include "base/half.h"
#include "quant/search/fit_kernels.h"

#define SLUICE_INLINE [[gnu::always_inline]] static inline

namespace sluice::quant {
namespace {

typedef float V __attribute__((vector_size(4 * kLanes)));
typedef int32_t Mask __attribute__((vector_size(4 * kLanes)));

SLUICE_INLINE V all(float v) { return V{} + v; }
SLUICE_INLINE V pick(Mask m, V a, V b) { return m ? a : b; }
SLUICE_INLINE V least(V a, V b) { return a < b ? a : b; }
SLUICE_INLINE V most(V a, V b) { return a > b ? a : b; }
SLUICE_INLINE V size_of(V a) { return a < 0 ? -a : a; }
// To nearest even, of |v| < 2^22.
SLUICE_INLINE V rounded(V v) { return (v + 0x1.8p23f) - 0x1.8p23f; }
// 1 / v where v is large enough for a good inverse, else 0.
SLUICE_INLINE V inverse(V v) { return pick(size_of(v) > 0x1p-60f, 1.0f / v, V{}); }
SLUICE_INLINE V load(const float* p) {
  V v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
SLUICE_INLINE float sum_of(V v) {
  float s = 0;
  for (int l = 0; l < kLanes; ++l) s += v[l];
  return s;
}

// The groups' values and weights, element by element.
template <int G>
struct Tile {
  static constexpr int size() { return G; }
  V x[G], w[G];
  void load(const float* values, const float* weights, int count) {
    for (int i = 0; i < G; ++i)
      for (int l = 0; l < kLanes; ++l) {
        x[i][l] = l < count ? values[l * G + i] : 0;
        w[i][l] = l < count ? weights[l * G + i] : 0;
      }
  }
};

// Groups of any length up to kMaxGroup.
struct LongTile {
  int n = 0;
  V x[kMaxGroup], w[kMaxGroup];
  int size() const { return n; }
};

// Level grids: nearest(v) is the value of the level nearest to v.
struct Uniform {
  V lo, hi;
  explicit Uniform(const BlockShape& s) : lo(all(float(s.min_level))), hi(all(float(s.max_level))) {}
  Uniform(V lo, V hi) : lo(lo), hi(hi) {}
  SLUICE_INLINE V clamp(V v, V lo, V hi) { return least(most(v, lo), hi); }
  [[gnu::always_inline]] inline V nearest(V v) const { return rounded(clamp(v, lo, hi)); }
  int level(float value) const { return int(value); }
};
struct Codebook {
  const int8_t* values;
  explicit Codebook(const BlockShape& s) : values(s.codebook) {}
  [[gnu::always_inline]] inline V nearest(V v) const {
    V y = all(float(values[0]));
    for (int j = 0; j < 15; ++j) {
      const float middle = 0.5f * (float(values[j]) + float(values[j + 1]));
      y += pick(v > middle, all(float(values[j + 1]) - float(values[j])), V{});
    }
    return y;
  }
  int level(float value) const {
    int i = 0;
    while (i < 15 && float(values[i]) < value) ++i;
    return i;
  }
};

// FP8 e4m3 (base/fp8.h): three bits after the leading one, and steps no finer than 2^-9.
struct E4m3 {
  [[gnu::always_inline]] inline V nearest(V v) const {
    const V x = least(most(v, all(-448.0f)), all(448.0f));
    const V power = V(Mask(x) & 0x7F800000);
    const V at = most(power, all(0x1p-6f)) * (0x1p-3f * 0x1.8p23f);  // whose unit in the last place is the step at x
    return (x + at) - at;
  }
};

// Sums over a group at given scales, with every element at its nearest level q.
struct Moments {
  V error{};                 // w (s q + m - x)^2
  V wq{}, wqq{}, wxq{};
};
struct GroupSums { V w{}, wx{}; };

template <bool kOffset, class T, class Grid>
SLUICE_INLINE V error_at(const T& t, const Grid& grid, V s, V m) {
  const V inv = inverse(s);
  V error{};
  for (int i = 0; i < t.size(); ++i) {
    const V x = kOffset ? t.x[i] - m : t.x[i];
    const V r = s * grid.nearest(x * inv) - x;
    error += t.w[i] * r * r;
  }
  return error;
}

template <bool kOffset, class T, class Grid>
SLUICE_INLINE Moments moments_at(const T& t, const Grid& grid, V s, V m) {
  const V inv = inverse(s);
  Moments a;
  for (int i = 0; i < t.size(); ++i) {
    const V x = kOffset ? t.x[i] - m : t.x[i];
    const V q = grid.nearest(x * inv), r = s * q - x, wq = t.w[i] * q;
    a.error += t.w[i] * r * r;
    if constexpr (kOffset) a.wq += wq;
    a.wqq += wq * q;
    a.wxq += wq * t.x[i];
  }
  return a;
}

}  // namespace
}  // namespace sluice::quant
