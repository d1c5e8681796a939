// Weighted sums of a tile's values, by the type of values.

template <CacheElement T>
SIMD F load_dims(const typename Element<T>::Type* p, int n) {
  if (n >= kLanes) return Element<T>::load(p);
  typename Element<T>::Type whole[kLanes] = {};
  __builtin_memcpy(whole, p, size_t(n) * sizeof(whole[0]));
  return Element<T>::load(whole);
}

// acc[r][d..] += weights * values over keys [begin, end) of the tile, V vectors of dimensions for R rows at a time; n of the
// dimensions are left (fewer than a vector only when V is 1).
template <CacheElement T, int R, int V>
SIMD void add_dims(const TilePieces& p, int dims, int d, float (*weights)[kTile], float (*acc)[kRowStride], int begin, int end) {
  using E = typename Element<T>::Type;
  F sum[R][V];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) sum[r][v] = f_load(acc[r] + d + v * kLanes);
  for (int piece = begin / kKeyTile; piece * kKeyTile < end; ++piece) {
    const int from = begin > piece * kKeyTile ? begin : piece * kKeyTile;
    const int to = end < (piece + 1) * kKeyTile ? end : (piece + 1) * kKeyTile;
    const size_t skip = size_t(from - piece * kKeyTile) * size_t(dims) + size_t(d);
    const E *value = reinterpret_cast<const E*>(p.values[piece]) + skip, *next = reinterpret_cast<const E*>(p.next_values[piece]) + skip;
    for (int j = from; j < to; ++j, value += dims, next += dims) {
      F x[V];
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) x[v] = V == 1 ? load_dims<T>(value, dims - d) : Element<T>::load(value + v * kLanes);
      prefetch(next);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const F w = f_set1(weights[r][j]);
#pragma GCC unroll 2
        for (int v = 0; v < V; ++v) sum[r][v] = f_fma(w, x[v], sum[r][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) f_store(acc[r] + d + v * kLanes, sum[r][v]);
}

template <CacheElement T, int R>
static void add_values(const TilePieces& p, int dims, float (*weights)[kTile], float (*acc)[kRowStride], int begin, int end) {
  int d = 0;
  for (; d + 2 * kLanes <= dims; d += 2 * kLanes) add_dims<T, R, 2>(p, dims, d, weights, acc, begin, end);
  for (; d < dims; d += kLanes) add_dims<T, R, 1>(p, dims, d, weights, acc, begin, end);
}

// The keys all rows see together; a row's own at either end apart, in the row's order.
template <CacheElement T, int R>
static void fold_floats(const RowGroup& g, const TilePieces& p, float (*weights)[kTile], Fold& f, const int* begin, const int* end) {
  const int dims = g.args->head_dim;
  int from = 0, to = kTile;
  for (int r = 0; r < R; ++r) {
    from = begin[r] > from ? begin[r] : from;
    to = end[r] < to ? end[r] : to;
  }
  if (from >= to) {
    for (int r = 0; r < R; ++r) add_values<T, 1>(p, dims, weights + r, f.acc + r, begin[r], end[r]);
    return;
  }
  for (int r = 0; r < R; ++r)
    if (begin[r] < from) add_values<T, 1>(p, dims, weights + r, f.acc + r, begin[r], from);
  add_values<T, R>(p, dims, weights, f.acc, from, to);
  for (int r = 0; r < R; ++r)
    if (to < end[r]) add_values<T, 1>(p, dims, weights + r, f.acc + r, to, end[r]);
}

// Weights times the scales of their values, which stand `scales` bytes into a piece; 0 for keys that the row does not see,
// whatever stands there. Returns the largest, or NaN where one is none.
SIMD float scale_weights(const TilePieces& p, size_t scales, const float* weights, int begin, int end, float* out) {
  F top = f_zero(), poison = f_zero();
  for (int j = p.first * kKeyTile; j < p.last * kKeyTile; j += kLanes) {
    const F scale = f_from_bf16(reinterpret_cast<const uint16_t*>(p.values[j / kKeyTile] + scales) + j % kKeyTile);
    const F v = f_if_between(begin - j, end - j, f_mul(f_load(weights + j), scale), f_zero());
    f_store(out + j, v);
    top = f_max(top, v);
    poison = f_add(poison, f_sub(v, v));
  }
  return f_max_of(top) + f_sum(poison);
}

// Weights of a row as whole numbers of 16 bits, in pairs of keys: of a tile's largest weight they are off by a part in 65,000.
// Returns what one of them is worth.
SIMD float pair_weights(const TilePieces& p, size_t scales, const float* weights, int begin, int end, int32_t* pairs) {
  alignas(64) float scaled[kTile];
  const float top = scale_weights(p, scales, weights, begin, end, scaled);
  const F factor = f_set1(top > 0 ? 32767.0f / top : 0.0f);
  for (int j = p.first * kKeyTile; j < p.last * kKeyTile; j += kLanes)
    i_store_s16(reinterpret_cast<int16_t*>(pairs) + j, i_from_float(f_mul(f_load(scaled + j), factor)));
  return top / 32767.0f;
}

// Sums of V vectors of dimensions over a tile's keys in whole numbers: codes of int8 (bytes at `at` of a piece, `stride` to the next pair
// of keys), or the two halves of int4's bytes (V is 2).
template <CacheElement T, int R, int V>
SIMD void sum_codes(const TilePieces& p, size_t at, size_t stride, const int32_t (*pairs)[kTile / 2], I (&sum)[R][V]) {
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) sum[r][v] = i_zero();
  for (int piece = p.first; piece < p.last; ++piece) {
    const uint8_t *codes = p.values[piece] + at, *next = p.next_values[piece] + at;
    for (int j = piece * kKeyTile / 2; j < (piece + 1) * kKeyTile / 2; ++j, codes += stride, next += stride) {
      I x[V];
      if constexpr (T == CacheElement::kInt4) {
        const I both = i_pairs_from_u8(codes);
        x[0] = i_and(both, i_set1(0x000F000F));
        x[1] = i_pair_shift_right<4>(both);
      } else {
#pragma GCC unroll 2
        for (int v = 0; v < V; ++v) x[v] = i_pairs_from_s8(codes + v * 2 * kLanes);
      }
      prefetch(next);
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const I w = i_set1(pairs[r][j]);
#pragma GCC unroll 2
        for (int v = 0; v < V; ++v) sum[r][v] = i_dot_pairs(sum[r][v], x[v], w);
      }
    }
  }
}

template <int R>
static void fold_int8(const RowGroup& g, const TilePieces& p, float (*weights)[kTile], Fold& f, const int* begin, const int* end) {
  const int dims = g.args->head_dim;
  alignas(64) int32_t pairs[R][kTile / 2];
  float unit[R];
  for (int r = 0; r < R; ++r) unit[r] = pair_weights(p, size_t(dims) * kKeyTile, weights[r], begin[r], end[r], pairs[r]);
  const auto add = [&]<int V>(int d) __attribute__((always_inline)) {
    I sum[R][V];
    sum_codes<CacheElement::kInt8, R, V>(p, size_t(2 * d), size_t(2 * dims), pairs, sum);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) {
        float* acc = f.acc[r] + d + v * kLanes;
        f_store(acc, f_fma(f_from_int(sum[r][v]), f_set1(unit[r]), f_load(acc)));
      }
  };
  int d = 0;
  for (; d + 2 * kLanes <= dims; d += 2 * kLanes) add.template operator()<2>(d);
  for (; d < dims; d += kLanes) add.template operator()<1>(d);
}

template <int R>
static void fold_int4(const RowGroup& g, const TilePieces& p, float (*weights)[kTile], Fold& f, const int* begin, const int* end) {
  const int dims = g.args->head_dim, groups = cache_groups(dims);
  alignas(64) int32_t pairs[R][kTile / 2];
  alignas(64) float minima[kTile];
  float unit[R], least[R];
  for (int group = 0; group < groups; ++group) {
    const size_t scales = kKeyTile * cache_code_bytes(CacheElement::kInt4, dims) + size_t(group) * 4 * kKeyTile;
    for (int r = 0; r < R; ++r) {
      unit[r] = pair_weights(p, scales, weights[r], begin[r], end[r], pairs[r]);
      scale_weights(p, scales + 2 * kKeyTile, weights[r], begin[r], end[r], minima);
      F sum = f_zero();
      for (int j = p.first * kKeyTile; j < p.last * kKeyTile; j += kLanes) sum = f_add(sum, f_load(minima + j));
      least[r] = f_sum(sum);
    }
    for (int i = 0; i < kCacheGroup / 2; i += kLanes) {
      I sum[R][2];
      sum_codes<CacheElement::kInt4, R, 2>(p, size_t(group * kCacheGroup + 2 * i), size_t(groups) * kCacheGroup, pairs, sum);
      for (int half = 0; half < 2; ++half) {
        const int d = group * kCacheGroup + half * kCacheGroup / 2 + i;
        if (d >= dims) continue;
        for (int r = 0; r < R; ++r)
          f_store(f.acc[r] + d, f_fma(f_from_int(sum[r][half]), f_set1(unit[r]), f_add(f_load(f.acc[r] + d), f_set1(least[r]))));
      }
    }
  }
}

// e4m3 as bfloat16, in products of pairs of keys where there are any; see fp8_pairs.
template <int R>
static void fold_fp8(const RowGroup& g, const TilePieces& p, float (*weights)[kTile], Fold& f, const int* begin, const int* end) {
  const int dims = g.args->head_dim;
  alignas(64) float scaled[R][kTile];
  alignas(64) uint32_t pairs[R][kTile / 2];
  float unit[R];
  for (int r = 0; r < R; ++r) {
    unit[r] = kFp8Up + 0 * scale_weights(p, size_t(dims) * kKeyTile, weights[r], begin[r], end[r], scaled[r]);
    for (int j = p.first * kKeyTile; j < p.last * kKeyTile; j += kLanes) {
      const F up = f_mul(f_load(scaled[r] + j), f_set1(kFp8Up));
      if constexpr (kPairProducts) f_to_bf16(reinterpret_cast<uint16_t*>(pairs[r]) + j, up);
      else f_store(scaled[r] + j, up);
    }
  }
  const auto add = [&]<int V>(int d) __attribute__((always_inline)) {
    F sum[R][V];
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < V; ++v) sum[r][v] = f_zero();
    for (int piece = p.first; piece < p.last; ++piece) {
      const uint8_t *codes = p.values[piece] + 2 * d, *next = p.next_values[piece] + 2 * d;
      for (int j = piece * kKeyTile / 2; j < (piece + 1) * kKeyTile / 2; ++j, codes += 2 * dims, next += 2 * dims) {
        I x[V];
#pragma GCC unroll 2
        for (int v = 0; v < V; ++v) x[v] = fp8_pairs(codes + v * 2 * kLanes);
        prefetch(next);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
          for (int v = 0; v < V; ++v) {
            if constexpr (kPairProducts) sum[r][v] = dot_pair(sum[r][v], x[v], pairs[r][j]);
            else
              sum[r][v] = f_fma(f_set1(scaled[r][2 * j + 1]), f_second_of_pair(x[v]), f_fma(f_set1(scaled[r][2 * j]), f_first_of_pair(x[v]), sum[r][v]));
          }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) {
        float* acc = f.acc[r] + d + v * kLanes;
        f_store(acc, f_fma(sum[r][v], f_set1(unit[r]), f_load(acc)));
      }
  };
  int d = 0;
  for (; d + 2 * kLanes <= dims; d += 2 * kLanes) add.template operator()<2>(d);
  for (; d < dims; d += kLanes) add.template operator()<1>(d);
}

template <CacheElement V, int R>
static void fold_values(const RowGroup& g, const TilePieces& p, float (*weights)[kTile], Fold& f, const int* begin, const int* end) {
  if constexpr (is_float(V)) fold_floats<V, R>(g, p, weights, f, begin, end);
  else if constexpr (V == CacheElement::kFp8) fold_fp8<R>(g, p, weights, f, begin, end);
  else if constexpr (V == CacheElement::kInt8) fold_int8<R>(g, p, weights, f, begin, end);
  else fold_int4<R>(g, p, weights, f, begin, end);
}
