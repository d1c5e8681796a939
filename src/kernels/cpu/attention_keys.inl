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

// Queries for a closed group of int4 keys: times the scales of its dimensions, as whole numbers of 16 bits (a 256th of what a scale's
// unit would make), and their products with its minima.
template <int R>
SIMD void scale_queries(const RowGroup& g, const KeyVector& k, int32_t (*pairs)[kMaxHeadDim / 2], int (&minima)[R]) {
  const int dims = g.args->head_dim;
  const uint8_t *s = k.piece + dims * kKeyTile / 2, *m = s + dims, *next = k.next + dims * kKeyTile / 2;
  I sum[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) sum[r] = i_zero();
  for (int d = 0; d < dims; d += 2 * kLanes) {  // beyond the head's dimensions queries are 0
    const I scale = i_pair_shift_left<7>(i_pairs_from_u8(s + d)), minimum = i_pairs_from_s8(m + d);
    prefetch(next + 2 * d);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const I q = i_load(g.pairs[r] + d / 2);
      f_store(reinterpret_cast<float*>(pairs[r] + d / 2), f_from_bits(i_pair_mul_high(q, scale)));
      sum[r] = i_dot_pairs(sum[r], q, minimum);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; r += 2) {
    int even, odd;
    i_sums(sum[r], sum[r + 1 < R ? r + 1 : r], even, odd);
    minima[r] = even;
    if (r + 1 < R) minima[r + 1] = odd;
  }
}

// What a score's whole numbers are worth: of codes, and of minima.
struct GroupUnits { float codes, minima; };
SIMD GroupUnits group_units(const uint8_t* piece, int dims) {
  uint16_t units[2];
  __builtin_memcpy(units, piece + dims * (kKeyTile / 2 + 2), sizeof units);
  return {256 * __builtin_bit_cast(float, uint32_t(units[0]) << 16), __builtin_bit_cast(float, uint32_t(units[1]) << 16)};
}

// int4: whole numbers, exact in any order but for a query's products with scales.
template <int R>
SIMD void int4_scores(const RowGroup& g, const KeyVector& k0, const KeyVector& k1, F (&s0)[R], F (&s1)[R]) {
  const int dims = g.args->head_dim;
  alignas(64) int32_t scaled[2][R][kMaxHeadDim / 2];
  int minima[2][R];
  const bool apart = k0.piece != k1.piece;
  scale_queries<R>(g, k0, scaled[0], minima[0]);
  if (apart) scale_queries<R>(g, k1, scaled[1], minima[1]);
  const auto& q0 = scaled[0];
  const auto& q1 = scaled[apart];
  I t0[R], t1[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) t0[r] = t1[r] = i_zero();
  const uint8_t *a = k0.piece + 2 * k0.lane, *b = k1.piece + 2 * k1.lane;
  const I below = i_set1(0x000F000F);
  for (int c = 0; c < dims / 4; ++c, a += 2 * kKeyTile, b += 2 * kKeyTile) {
    const I x = i_pairs_from_u8(a), y = i_pairs_from_u8(b);
    if (c % 2 == 0) {
      prefetch(k0.next + size_t(c) * 2 * kKeyTile);
      prefetch(k1.next + size_t(c) * 2 * kKeyTile);
    }
    const I x0 = i_and(x, below), x1 = i_pair_shift_right<4>(x), y0 = i_and(y, below), y1 = i_pair_shift_right<4>(y);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      t0[r] = i_dot_pairs(i_dot_pairs(t0[r], x0, i_set1(q0[r][2 * c])), x1, i_set1(q0[r][2 * c + 1]));
      t1[r] = i_dot_pairs(i_dot_pairs(t1[r], y0, i_set1(q1[r][2 * c])), y1, i_set1(q1[r][2 * c + 1]));
    }
  }
  const GroupUnits u = group_units(k0.piece, dims), v = group_units(k1.piece, dims);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const float unit = g.unit[r];
    s0[r] = f_fma(f_from_int(t0[r]), f_set1(unit * u.codes), f_set1(float(minima[0][r]) * (unit * u.minima)));
    s1[r] = f_fma(f_from_int(t1[r]), f_set1(unit * v.codes), f_set1(float(minima[apart][r]) * (unit * v.minima)));
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

// Rows whose own group is in the tile read it as rows of int8, whatever it is by now.
template <int R>
static void score_own(const RowGroup& g, const TilePieces& p, float (*scores)[kTile]) {
  alignas(64) float own[R][kTile];
  const uint8_t* scored = nullptr;
  for (int r = 0; r < R; ++r) {
    const int at = g.own_begin[r] - p.tile;
    if (!g.own[r] || at < 0 || at >= kTile) continue;
    if (g.own[r] != scored) {
      constexpr int kLane = kKeyTile - kLanes;
      score_vectors<CacheElement::kInt8, R>(g, {g.own[r], g.own[r], 0}, {g.own[r], g.own[r], kLane}, own, 0, kLane);
      scored = g.own[r];
    }
    __builtin_memcpy(scores[r] + at, own[r], kKeyTile * sizeof(float));
  }
}

template <CacheElement K, int R>
static void score_tile(const RowGroup& g, const TilePieces& p, float (*scores)[kTile]) {
  int last = p.last;
  if constexpr (keys_in_groups(K)) last = g.closed - p.tile < last * kKeyTile ? (g.closed - p.tile) / kKeyTile : last;
  for (int i = p.first; i < last; i += kLanes == kKeyTile ? 2 : 1) {
    const int j = kLanes == kKeyTile && i + 1 < last ? i + 1 : i, lane = kKeyTile - kLanes;
    score_vectors<K, R>(g, {p.keys[i], p.next_keys[i], 0}, {p.keys[j], p.next_keys[j] + 32 * (lane > 0), lane}, scores, i * kKeyTile,
                        j * kKeyTile + lane);
  }
  if constexpr (keys_in_groups(K)) score_own<R>(g, p, scores);
}

// What keys' offset adds to scores. A query with the offset b, rotated to position p, is the sum over pairs of dimensions of
// A cos(p w) + B sin(p w), A = q0 b0 + q1 b1, B = q1 b0 - q0 b1. For the keys of a tile that is turned to the tile's first position,
// and then one small table of cos and sin at 0..63, in products of pairs of whole numbers, is good for all of them.

constexpr float kTurnUnit = 16384.0f;   // of the table
constexpr float kTurnTotal = 131071.0f;  // a row's |A| and |B| together, at most: sums stay below 2^31

// A and B of the pairs, and what dimensions that are not rotated give.
static void turn_query(RowGroup& g, int r) {
  const AttentionArgs& a = *g.args;
  const int half = a.rope_dims / 2;
  const float *q = g.q[r], *b = a.key_offset + size_t(g.kv_head) * size_t(a.head_dim);
  for (int i = 0; i < half; ++i) {
    const int first = a.style == RopeStyle::kHalves ? i : 2 * i, second = a.style == RopeStyle::kHalves ? half + i : 2 * i + 1;
    g.turn[r][0][i] = q[first] * b[first] + q[second] * b[second];
    g.turn[r][1][i] = q[second] * b[first] - q[first] * b[second];
  }
  g.still[r] = 0;
  for (int d = a.rope_dims; d < a.head_dim; ++d) g.still[r] += q[d] * b[d];
}

// (cos, sin) of pair i at position j of a tile, side by side. Rows of the tables that no key needs may not be there.
using Turns = int32_t[kMaxHeadDim / 2][kTile];
static void fill_turns(const AttentionArgs& a, int positions, Turns& turns) {
  const int half = a.rope_dims / 2;
  alignas(64) int32_t row[kMaxHeadDim / 2 + 16];
  for (int j = 0; j < kTile; ++j) {
    const size_t at = size_t(j < positions ? j : 0) * size_t(half);
    for (int i = 0; i < half; i += kLanes) {
      const I c = i_from_float(f_mul(f_load_n(a.cos_table + at + i, half - i), f_set1(kTurnUnit)));
      const I s = i_from_float(f_mul(f_load_n(a.sin_table + at + i, half - i), f_set1(kTurnUnit)));
      f_store(reinterpret_cast<float*>(row + i), f_from_bits(i_or(i_and(c, i_set1(0xFFFF)), i_shift_left<16>(s))));
    }
    for (int i = 0; i < half; ++i) turns[i][j] = row[i];
  }
}

// A row's pairs (A, B) at the tile's first position as whole numbers; returns what one of them, times the table's unit, is worth.
static float turn_to(const RowGroup& g, int r, int tile, int32_t* pairs) {
  const AttentionArgs& a = *g.args;
  const int half = a.rope_dims / 2;
  const float *cos = a.cos_table + size_t(tile) * size_t(half), *sin = a.sin_table + size_t(tile) * size_t(half);
  alignas(64) float first[kMaxHeadDim / 2 + 16], second[kMaxHeadDim / 2 + 16];
  F total = f_zero(), most = f_zero();
  for (int i = 0; i < half; i += kLanes) {
    const F c = f_load_n(cos + i, half - i), s = f_load_n(sin + i, half - i);
    const F A = f_load_n(g.turn[r][0] + i, half - i), B = f_load_n(g.turn[r][1] + i, half - i);
    const F x = f_fma(A, c, f_mul(B, s)), y = f_fnma(A, s, f_mul(B, c));
    f_store(first + i, x);
    f_store(second + i, y);
    total = f_add(total, f_add(f_abs(x), f_abs(y)));
    most = f_max(most, f_max(f_abs(x), f_abs(y)));
  }
  const float sum = f_sum(total), by_sum = sum / (kTurnTotal - float(half)), by_most = f_max_of(most) / 32767.0f;  // rounding adds at most a half to each
  const float unit = by_most > by_sum ? by_most : by_sum;
  const F factor = f_set1(sum > 0 ? 1 / unit : 0.0f);
  for (int i = 0; i < half; i += kLanes) {
    const I x = i_from_float(f_mul(f_load(first + i), factor)), y = i_from_float(f_mul(f_load(second + i), factor));
    f_store(reinterpret_cast<float*>(pairs + i), f_from_bits(i_or(i_and(x, i_set1(0xFFFF)), i_shift_left<16>(y))));
  }
  return unit / kTurnUnit;
}

// Adds them to scores of the pieces [first, last). Two vectors of keys at a time; the last may be of keys that no row sees.
template <int R>
static void add_offsets(const RowGroup& g, const Turns& turns, int tile, int first, int last, float (*scores)[kTile]) {
  const int half = g.args->rope_dims / 2;
  alignas(64) int32_t pairs[R][kMaxHeadDim / 2 + 16];
  float unit[R];
  for (int r = 0; r < R; ++r) unit[r] = turn_to(g, r, tile, pairs[r]);
  for (int j = first * kKeyTile / (2 * kLanes) * (2 * kLanes); j < last * kKeyTile; j += 2 * kLanes) {
    I t0[R], t1[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) t0[r] = t1[r] = i_zero();
    for (int i = 0; i < half; ++i) {
      const I x = i_load(turns[i] + j), y = i_load(turns[i] + j + kLanes);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const I p = i_set1(pairs[r][i]);
        t0[r] = i_dot_pairs(t0[r], x, p);
        t1[r] = i_dot_pairs(t1[r], y, p);
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const F u = f_set1(unit[r]), still = f_set1(g.still[r]);
      float* at = scores[r] + j;
      f_store(at, f_add(f_load(at), f_fma(f_from_int(t0[r]), u, still)));
      f_store(at + kLanes, f_add(f_load(at + kLanes), f_fma(f_from_int(t1[r]), u, still)));
    }
  }
}

// Queries as keys of this type want them.
static void pair_queries(CacheElement keys, RowGroup& g) {
  if (is_float(keys)) return;
  if (g.args->key_offset)
    for (int r = 0; r < g.rows; ++r) turn_query(g, r);
  if (is_mixed(keys))
    for (int r = 0; r < g.rows; ++r) mix_row(g.q[r], g.args->head_dim);
  const int dims = g.args->head_dim, padded = keys_in_groups(keys) ? (dims + 31) / 32 * 32 : dims;
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
  }
}
