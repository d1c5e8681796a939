// Groups with a whole zero: a search over the scale, from the one that spans all values to ones that leave the largest out as far as pays
// with so few levels - a group is long, so its ends are rare. Zeros stand where they divide the span; then their neighbours are tried.
namespace sluice::quant {
namespace {

void weigh_by_size(LongTile& t) {
  V square{};
  for (int i = 0; i < t.n; ++i) square += t.x[i] * t.x[i];
  const V inv = pick(square > 1e-30f, float(t.n) / square, V{});
  for (int i = 0; i < t.n; ++i) t.w[i] = 1 + t.x[i] * t.x[i] * inv;
}

class LongFit {
 public:
  LongFit(const LongTile& t, int bits) : t_(t), sums_(group_sums(t)), bits_(bits), top_((1 << bits) - 1) {
    for (int i = 0; i < t.n; ++i) lo_ = least(lo_, t.x[i]), hi_ = most(hi_, t.x[i]);
    best_.error = all(INFINITY);
  }

  void symmetric() {
    const float low = -float(1 << (bits_ - 1)), high = float(top_) + low;
    const V far = pick(-lo_ > hi_, lo_, hi_), zero = all(-low);
    for (int k = 0; k < kStarts; ++k) {  // the furthest value at either end
      start(far / (low * levels(k)), zero, 1);
      start(far / (high * levels(k)), zero, 1);
    }
    start(best_.s, zero, 2);
  }
  void with_zeros() {
    const V span = hi_ - lo_, zero = clamped(rounded(-lo_ * inverse(span) * float(top_)));
    for (int k = 0; k < kStarts; ++k) start(span / (float(top_) * levels(k)), zero, 1);
    for (int pass = 0; pass < 2; ++pass) {
      const V s = best_.s, z = zero_;
      start(s, clamped(z - 1), 2);
      start(s, clamped(z + 1), 2);
    }
  }
  void store(float* scale, float* zero) const {
    const V s = as_half(best_.s);
    for (int l = 0; l < kLanes; ++l) {
      scale[l] = s[l];
      zero[l] = zero_[l];
    }
  }

 private:
  static constexpr int kStarts = 10;
  // Of start k, how much wider its values would be than the grid.
  float levels(int k) const {
    const float widest = bits_ == 2 ? 2.2f : bits_ == 3 ? 1.7f : bits_ == 4 ? 1.4f : bits_ < 8 ? 1.2f : 1.05f;
    return 1 + (widest - 1) * float(k - 1) / float(kStarts - 2);
  }
  V clamped(V zero) const { return least(most(zero, all(1)), all(float(top_))); }
  void start(V s, V zero, int passes) {
    GroupFit f;
    f.error = all(INFINITY);
    try_start<false>(t_, Uniform(-zero, float(top_) - zero), sums_, true, s, V{}, passes, f);
    const Mask better = f.error < best_.error;
    best_.s = pick(better, f.s, best_.s);
    best_.error = least(f.error, best_.error);
    zero_ = pick(better, zero, zero_);
  }

  const LongTile& t_;
  GroupSums sums_;
  int bits_, top_;
  V lo_{}, hi_{}, zero_{};
  GroupFit best_;
};

void long_group(const float* x, const float* weights, int n, int bits, bool symmetric, float* scale, float* zero) {
  LongTile t;
  t.n = n;
  for (int i = 0; i < n; ++i) {
    for (int l = 0; l < kLanes; ++l) t.x[i][l] = x[i * kLanes + l];
    if (weights) t.w[i] = all(weights[i]);
  }
  if (!weights) weigh_by_size(t);
  LongFit fit(t, bits);
  if (symmetric) fit.symmetric();
  else fit.with_zeros();
  fit.store(scale, zero);
}

}  // namespace
}  // namespace sluice::quant
