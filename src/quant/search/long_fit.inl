// Groups with a whole zero. Symmetric ones are a search over the scale alone; else the real offset is found first, and of the whole
// zeros around it the one whose best scale leaves the least error is taken.
namespace sluice::quant {
namespace {

void long_group(const float* x, const float* weights, int n, int bits, bool symmetric, float* scale, float* zero) {
  LongTile t;
  t.n = n;
  for (int i = 0; i < n; ++i) {
    for (int l = 0; l < kLanes; ++l) t.x[i][l] = x[i * kLanes + l];
    t.w[i] = all(weights[i]);
  }
  const int top = (1 << bits) - 1, middle = 1 << (bits - 1);
  GroupFit best;
  V zeros = all(float(middle));
  if (symmetric) {
    const BlockShape shape{n, n, -middle, top - middle, nullptr, false, 1, 1, 1};
    best = fit_group<false>(t, Uniform(shape), shape);
  } else {
    const BlockShape shape{n, n, 0, top, nullptr, true, 1, 1, 1};
    const GroupFit real = fit_group<true>(t, Uniform(shape), shape);
    const V wanted = rounded(least(most(-real.m * inverse(real.s), all(1)), all(float(top))));
    const GroupSums sums = group_sums(t);
    best.error = all(INFINITY);
    for (int d = -1; d <= 1; ++d) {
      const V z = least(most(wanted + float(d), all(1)), all(float(top)));
      GroupFit f;
      f.error = all(INFINITY);
      try_start<false>(t, Uniform(-z, float(top) - z), sums, true, real.s, V{}, 2, f);
      const Mask better = f.error < best.error;
      best.s = pick(better, f.s, best.s);
      best.error = least(f.error, best.error);
      zeros = pick(better, z, zeros);
    }
  }
  best.s = as_half(best.s);
  for (int l = 0; l < kLanes; ++l) {
    scale[l] = best.s[l];
    zero[l] = zeros[l];
  }
}

}  // namespace
}  // namespace sluice::quant
