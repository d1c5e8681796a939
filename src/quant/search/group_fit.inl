// One group's scale and offset as real numbers: from several starts, least squares in turn with reassigned levels (Lloyd's
// iteration), which never makes the error larger.
namespace sluice::quant {
namespace {

struct GroupFit {
  V s{}, m{};
  V error{};
};

SLUICE_INLINE V as_half(V v) {
  V out;
  for (int l = 0; l < kLanes; ++l) out[l] = half_to_float(float_to_half(v[l] > kLargestHalf ? kLargestHalf : v[l] < -kLargestHalf ? -kLargestHalf : v[l]));
  return out;
}

// The best scale and offset for the levels that the sums were taken with. free: offsets may raise values too.
template <bool kOffset>
SLUICE_INLINE void solve(const Moments& a, const GroupSums& g, bool free, V& s, V& m) {
  const V alone = a.wxq * inverse(a.wqq);
  if constexpr (!kOffset) {
    s = alone;
    return;
  }
  const V det = a.wqq * g.w - a.wq * a.wq;
  const Mask good = det > 1e-6f * a.wqq * g.w;  // else all levels are one
  const V inv = inverse(pick(good, det, V{}));
  V slope = (a.wxq * g.w - a.wq * g.wx) * inv, base = (a.wqq * g.wx - a.wq * a.wxq) * inv;
  const Mask bare = free ? slope <= 0 : (slope <= 0) | (base > 0);
  s = pick(good & ~bare, slope, pick(good, alone, s));
  m = pick(good & ~bare, base, pick(good, V{}, m));
}

template <bool kOffset, class T, class Grid>
SLUICE_INLINE void try_start(const T& t, const Grid& grid, const GroupSums& g, bool free, V s, V m, int passes, GroupFit& best) {
  for (int pass = 0;; ++pass) {
    const Moments a = moments_at<kOffset>(t, grid, s, m);
    const Mask better = a.error < best.error;
    best.s = pick(better, s, best.s);
    best.m = pick(better, m, best.m);
    best.error = least(a.error, best.error);
    if (pass == passes) return;
    solve<kOffset>(a, g, free, s, m);
  }
}

template <class T>
SLUICE_INLINE GroupSums group_sums(const T& t) {
  GroupSums g;
  for (int i = 0; i < t.size(); ++i) {
    g.w += t.w[i];
    g.wx += t.w[i] * t.x[i];
  }
  return g;
}

// How far starts go beyond the scale that just spans the values, in levels: clipping pays where levels are few.
constexpr int kStarts = 9, kLastPasses = 2;

template <bool kOffset, class T, class Grid>
GroupFit fit_group(const T& t, const Grid& grid, const BlockShape& shape) {
  const GroupSums g = group_sums(t);
  const bool free = !shape.integer_scales();
  V lo = t.x[0], hi = t.x[0];
  for (int i = 1; i < t.size(); ++i) lo = least(lo, t.x[i]), hi = most(hi, t.x[i]);
  const float low = shape.level_value(shape.min_level), high = shape.level_value(shape.max_level);
  GroupFit best;
  best.error = all(INFINITY);
  if constexpr (kOffset) {
    if (!free) lo = least(lo, V{});
    for (int k = 0; k < kStarts; ++k) {
      const float levels = high + (float(k) - 2) * (high > 8 ? 0.4f : 0.2f);
      try_start<true>(t, grid, g, free, (hi - lo) * (1 / levels), lo, 1, best);
    }
  } else {
    // The value furthest from zero at either end of the levels.
    const V far = pick(-lo > hi, lo, hi);
    for (int k = 0; k < kStarts; ++k) {
      const float by = 1 + (float(k) - 2) * 0.06f;
      try_start<false>(t, grid, g, free, far * (by / low), V{}, 1, best);
      if (low > -100 || shape.codebook) try_start<false>(t, grid, g, free, far * (by / high), V{}, 1, best);
    }
  }
  try_start<kOffset>(t, grid, g, free, best.s, best.m, kLastPasses, best);
  return best;
}

}  // namespace
}  // namespace sluice::quant
