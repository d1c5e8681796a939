// A block of 256 with integer scales: the groups' real scales first, then codes for them in units of the block's own scale (and
// offset), refined group by group against the error itself, in turn with least squares over the block's two floats.
namespace sluice::quant {
namespace {

template <int G, bool kOffset, class Grid>
class SuperFit {
 public:
  SuperFit(const BlockShape& shape, const float* x, const float* w) : shape_(shape), grid_(shape) {
    for (int t = 0; t < kTiles; ++t) {
      tiles_[t].load(x + t * kLanes * G, w + t * kLanes * G, kLanes);
      sums_[t] = group_sums(tiles_[t]);
    }
  }

  void run(BlockCodes& out) {
    for (int t = 0; t < kTiles; ++t) real_[t] = fit_group<kOffset>(tiles_[t], grid_, shape_);
    best_.error = INFINITY;
    for (int start = 0; start < kUnitStarts; ++start) {
      State s;
      first_units(s, start);
      for (int round = 0; round < kRounds; ++round) {
        refine_codes(s);
        keep(s);
        if (!refine_units(s)) break;
      }
      refine_codes(s);
      keep(s);
    }
    write(out);
  }

 private:
  static constexpr int kTiles = 256 / G / kLanes, kRounds = 3, kUnitStarts = 3;
  struct State {
    float d = 0, m = 0;
    V scale[kTiles], offset[kTiles];  // whole numbers
    V each[kTiles];                   // error of each group
    float error = 0;
  };

  SLUICE_INLINE V code(V v, float unit, float lo, float hi) {
    const V inv = inverse(all(unit));
    return rounded(least(most(v * inv, all(lo)), all(hi)));
  }

  // Units such that the largest group's code is at or somewhat below the largest code: of many, those whose codes lie nearest the
  // groups' real scales, in terms of the error that they would make.
  void first_units(State& s, int start) {
    float largest = 0, lowest = 0;
    for (int t = 0; t < kTiles; ++t)
      for (int l = 0; l < kLanes; ++l) {
        if (std::fabs(real_[t].s[l]) > std::fabs(largest)) largest = real_[t].s[l];
        if (real_[t].m[l] < lowest) lowest = real_[t].m[l];
      }
    const float end = float(shape_.min_scale < 0 ? shape_.min_scale : shape_.max_scale);
    const float by = 1.0f + 0.08f * float(start);
    s.d = half_to_float(float_to_half(least_half(largest / end * by)));
    s.m = kOffset ? half_to_float(float_to_half(least_half(lowest / float(shape_.max_offset) * by))) : 0;
    for (int t = 0; t < kTiles; ++t) {
      s.scale[t] = code(real_[t].s, s.d, float(shape_.min_scale), float(shape_.max_scale));
      s.offset[t] = kOffset ? code(real_[t].m, s.m, 0, float(shape_.max_offset)) : V{};
      s.each[t] = all(INFINITY);
    }
  }
  static float least_half(float v) { return v > kLargestHalf ? kLargestHalf : v < -kLargestHalf ? -kLargestHalf : v; }

  // Each group alone: the codes one up and one down, in every combination.
  void refine_codes(State& s) {
    s.error = 0;
    const float lo = float(shape_.min_scale), hi = float(shape_.max_scale), top = float(shape_.max_offset);
    for (int t = 0; t < kTiles; ++t) {
      const V scale = s.scale[t], offset = s.offset[t];
      V best = all(INFINITY);
      for (int i = -1; i <= 1; ++i)
        for (int j = kOffset ? -1 : 0; j <= (kOffset ? 1 : 0); ++j) {
          const V sc = least(most(scale + float(i), all(lo)), all(hi));
          const V of = least(most(offset + float(j), V{}), all(top));
          const V error = error_at<kOffset>(tiles_[t], grid_, sc * s.d, of * s.m);
          const Mask better = error < best;
          best = pick(better, error, best);
          s.scale[t] = pick(better, sc, s.scale[t]);
          s.offset[t] = pick(better, of, s.offset[t]);
        }
      s.each[t] = best;
      s.error += sum_of(best);
    }
  }

  // Least squares over d and m with codes and levels as they are. False: nothing changed.
  bool refine_units(State& s) {
    float aa = 0, ab = 0, bb = 0, ax = 0, bx = 0;
    for (int t = 0; t < kTiles; ++t) {
      const Moments a = moments_at<kOffset>(tiles_[t], grid_, s.scale[t] * s.d, s.offset[t] * s.m);
      aa += sum_of(s.scale[t] * s.scale[t] * a.wqq);
      ax += sum_of(s.scale[t] * a.wxq);
      if constexpr (kOffset) {
        ab += sum_of(s.scale[t] * s.offset[t] * a.wq);
        bb += sum_of(s.offset[t] * s.offset[t] * sums_[t].w);
        bx += sum_of(s.offset[t] * sums_[t].wx);
      }
    }
    const float det = aa * bb - ab * ab;
    float d = s.d, m = s.m;
    if (kOffset && det > 1e-6f * aa * bb && det > 0) {
      d = (ax * bb - ab * bx) / det;
      m = (aa * bx - ab * ax) / det;
    } else if (aa > 0) {
      d = (ax - ab * s.m) / aa;
    }
    d = half_to_float(float_to_half(least_half(d)));
    m = half_to_float(float_to_half(least_half(m)));
    if (d == s.d && m == s.m) return false;
    s.d = d;
    s.m = m;
    return true;
  }

  void keep(const State& s) {
    if (s.error < best_.error) best_ = s;
  }

  void write(BlockCodes& out) const {
    out.d = best_.d;
    out.m = best_.m;
    for (int t = 0; t < kTiles; ++t) {
      const V inv = inverse(best_.scale[t] * best_.d), m = best_.offset[t] * best_.m;
      for (int i = 0; i < G; ++i) {
        const V q = grid_.nearest((tiles_[t].x[i] - m) * inv);
        for (int l = 0; l < kLanes; ++l) out.level[(t * kLanes + l) * G + i] = int8_t(grid_.level(q[l]));
      }
      for (int l = 0; l < kLanes; ++l) {
        out.scale[t * kLanes + l] = int8_t(best_.scale[t][l]);
        out.offset[t * kLanes + l] = uint8_t(best_.offset[t][l]);
      }
    }
  }

  const BlockShape& shape_;
  Grid grid_;
  Tile<G> tiles_[kTiles];
  GroupSums sums_[kTiles];
  GroupFit real_[kTiles];
  State best_;
};

}  // namespace
}  // namespace sluice::quant
