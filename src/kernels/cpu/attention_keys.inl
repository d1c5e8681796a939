// Scores of a tile's keys, by the type of keys. Two vectors of keys at a time, one chain a score, along the dimensions.

// A vector's keys within a piece begin at `lane`.
struct KeyVector {
  const uint8_t* piece;
  const uint8_t* next;  // asked for ahead
  int lane;
};

template <CacheElement K, int R>
SIMD void float_scores(const RowGroup& g, const KeyVector& k0, const KeyVector& k1, F (&s0)[R], F (&s1)[R]) {
  using E = typename Element<K>::Type;
  const E *a = reinterpret_cast<const E*>(k0.piece) + k0.lane, *b = reinterpret_cast<const E*>(k1.piece) + k1.lane;
  for (int d = 0; d < g.args->head_dim; ++d) {
    const F x = Element<K>::load(a + size_t(d) * kKeyTile), y = Element<K>::load(b + size_t(d) * kKeyTile);
    if (d % 2 == 0) {  // 16 elements are half a line, or all of one
      prefetch(reinterpret_cast<const E*>(k0.next) + size_t(d) * kKeyTile);
      prefetch(reinterpret_cast<const E*>(k1.next) + size_t(d) * kKeyTile);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const F q = f_set1(g.q[r][d]);
      s0[r] = f_fma(q, x, s0[r]);
      s1[r] = f_fma(q, y, s1[r]);
    }
  }
}

// The scales (or minima) of a vector's keys.
SIMD F key_scales(const KeyVector& k, size_t at) {
  return f_from_bf16(reinterpret_cast<const uint16_t*>(k.piece + at) + k.lane);
}

// e4m3: as bfloat16, which it is exactly but for its exponent, in products of pairs where there are any.
template <int R>
SIMD void fp8_scores(const RowGroup& g, const KeyVector& k0, const KeyVector& k1, F (&s0)[R], F (&s1)[R]) {
  const int dims = g.args->head_dim;
  const uint8_t *a = k0.piece + 2 * k0.lane, *b = k1.piece + 2 * k1.lane;
  for (int c = 0; c < dims / 2; ++c, a += 2 * kKeyTile, b += 2 * kKeyTile) {
    const I x = fp8_pairs(a), y = fp8_pairs(b);
    if (c % 2 == 0) {
      prefetch(k0.next + size_t(c) * 2 * kKeyTile);
      prefetch(k1.next + size_t(c) * 2 * kKeyTile);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      if constexpr (kPairProducts) {
        const auto q = uint32_t(g.pairs[r][c]);
        s0[r] = dot_pair(s0[r], x, q);
        s1[r] = dot_pair(s1[r], y, q);
      } else {
        const F q = f_set1(g.q[r][2 * c]), p = f_set1(g.q[r][2 * c + 1]);
        s0[r] = f_fma(p, f_second_of_pair(x), f_fma(q, f_first_of_pair(x), s0[r]));
        s1[r] = f_fma(p, f_second_of_pair(y), f_fma(q, f_first_of_pair(y), s1[r]));
      }
    }
  }
  const F u = key_scales(k0, size_t(dims) * kKeyTile), v = key_scales(k1, size_t(dims) * kKeyTile);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    s0[r] = f_mul(s0[r], f_mul(u, f_set1(g.unit[r])));
    s1[r] = f_mul(s1[r], f_mul(v, f_set1(g.unit[r])));
  }
}

// int8: whole numbers, exact in any order.
template <int R>
SIMD void int8_scores(const RowGroup& g, const KeyVector& k0, const KeyVector& k1, F (&s0)[R], F (&s1)[R]) {
  const int dims = g.args->head_dim;
  I t0[R], t1[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) t0[r] = t1[r] = i_zero();
  const uint8_t *a = k0.piece + 2 * k0.lane, *b = k1.piece + 2 * k1.lane;
  for (int c = 0; c < dims / 2; ++c, a += 2 * kKeyTile, b += 2 * kKeyTile) {
    const I x = i_pairs_from_s8(a), y = i_pairs_from_s8(b);
    if (c % 2 == 0) {
      prefetch(k0.next + size_t(c) * 2 * kKeyTile);
      prefetch(k1.next + size_t(c) * 2 * kKeyTile);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const I q = i_set1(g.pairs[r][c]);
      t0[r] = i_dot_pairs(t0[r], x, q);
      t1[r] = i_dot_pairs(t1[r], y, q);
    }
  }
  const F u = key_scales(k0, size_t(dims) * kKeyTile), v = key_scales(k1, size_t(dims) * kKeyTile);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    s0[r] = f_mul(f_from_int(t0[r]), f_mul(u, f_set1(g.unit[r])));
    s1[r] = f_mul(f_from_int(t1[r]), f_mul(v, f_set1(g.unit[r])));
  }
}

// int4: whole numbers within a group; q.k of a group is scale * (q.codes) + minimum * sum(q).
template <int R>
SIMD void int4_scores(const RowGroup& g, const KeyVector& k0, const KeyVector& k1, F (&s0)[R], F (&s1)[R]) {
  constexpr int kChunks = kCacheGroup / 4;
  const int dims = g.args->head_dim, groups = cache_groups(dims);
  const size_t scales = kKeyTile * cache_code_bytes(CacheElement::kInt4, dims);
  const uint8_t *a = k0.piece + 2 * k0.lane, *b = k1.piece + 2 * k1.lane;
  const I below = i_set1(0x000F000F);
  for (int group = 0; group < groups; ++group) {
    I t0[R], t1[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) t0[r] = t1[r] = i_zero();
    for (int c = group * kChunks; c < (group + 1) * kChunks; ++c, a += 2 * kKeyTile, b += 2 * kKeyTile) {
      const I x = i_pairs_from_u8(a), y = i_pairs_from_u8(b);
      if (c % 2 == 0) {
        prefetch(k0.next + size_t(c) * 2 * kKeyTile);
        prefetch(k1.next + size_t(c) * 2 * kKeyTile);
      }
      const I x0 = i_and(x, below), x1 = i_pair_shift_right<4>(x), y0 = i_and(y, below), y1 = i_pair_shift_right<4>(y);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const I q = i_set1(g.pairs[r][2 * c]), p = i_set1(g.pairs[r][2 * c + 1]);
        t0[r] = i_dot_pairs(i_dot_pairs(t0[r], x0, q), x1, p);
        t1[r] = i_dot_pairs(i_dot_pairs(t1[r], y0, q), y1, p);
      }
    }
    const size_t at = scales + size_t(group) * 4 * kKeyTile;
    const F u = key_scales(k0, at), v = key_scales(k1, at), m = key_scales(k0, at + 2 * kKeyTile), n = key_scales(k1, at + 2 * kKeyTile);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const F unit = f_set1(g.unit[r]), sum = f_set1(g.group_sum[r][group]);
      s0[r] = f_fma(m, sum, f_fma(f_from_int(t0[r]), f_mul(u, unit), s0[r]));
      s1[r] = f_fma(n, sum, f_fma(f_from_int(t1[r]), f_mul(v, unit), s1[r]));
    }
  }
}

template <CacheElement K, int R>
SIMD void score_vectors(const RowGroup& g, const KeyVector& k0, const KeyVector& k1, float (*scores)[kTile], int at0, int at1) {
  F s0[R], s1[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) s0[r] = s1[r] = f_zero();
  if constexpr (is_float(K)) float_scores<K, R>(g, k0, k1, s0, s1);
  else if constexpr (K == CacheElement::kFp8) fp8_scores<R>(g, k0, k1, s0, s1);
  else if constexpr (K == CacheElement::kInt8) int8_scores<R>(g, k0, k1, s0, s1);
  else int4_scores<R>(g, k0, k1, s0, s1);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    f_store(scores[r] + at0, s0[r]);
    f_store(scores[r] + at1, s1[r]);
  }
}

template <CacheElement K, int R>
static void score_tile(const RowGroup& g, const TilePieces& p, float (*scores)[kTile]) {
  for (int i = p.first; i < p.last; i += kLanes == kKeyTile ? 2 : 1) {
    const int j = kLanes == kKeyTile && i + 1 < p.last ? i + 1 : i, lane = kKeyTile - kLanes;
    score_vectors<K, R>(g, {p.keys[i], p.next_keys[i], 0}, {p.keys[j], p.next_keys[j] + 32 * (lane > 0), lane}, scores, i * kKeyTile,
                        j * kKeyTile + lane);
  }
}

// Queries as keys of this type want them.
static void pair_queries(CacheElement keys, RowGroup& g) {
  if (is_float(keys)) return;
  const int dims = g.args->head_dim, padded = keys == CacheElement::kInt4 ? cache_groups(dims) * kCacheGroup : dims;
  for (int r = 0; r < g.rows; ++r) {
    float* q = g.q[r];
    for (int d = dims; d < padded; ++d) q[d] = 0;
    if (keys == CacheElement::kFp8) {
      for (int d = 0; d < dims; d += kLanes) {
        const F up = f_mul(f_load(q + d), f_set1(kFp8Up));
        f_store(q + d, up);
        if constexpr (kPairProducts) f_to_bf16(reinterpret_cast<uint16_t*>(g.pairs[r]) + d, up);
      }
      g.unit[r] = kFp8Up;
      continue;
    }
    const float top = largest_of(q, padded);
    g.unit[r] = top / 32767.0f;
    const F factor = f_set1(top > 0 ? 32767.0f / top : 0.0f);
    for (int d = 0; d < padded; d += kLanes) i_store_s16(reinterpret_cast<int16_t*>(g.pairs[r]) + d, i_from_float(f_mul(f_load(q + d), factor)));
    if (keys != CacheElement::kInt4) continue;
    for (int group = 0; group < padded / kCacheGroup; ++group) {
      F sum = f_zero();
      for (int d = 0; d < kCacheGroup; d += kLanes) sum = f_add(sum, f_load(q + group * kCacheGroup + d));
      g.group_sum[r][group] = f_sum(sum);
    }
  }
}
