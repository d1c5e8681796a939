// Attention of up to kAttentionRows query rows of one KV head over one split of the keys.
//
// Keys come in tiles of 64 and splits of 512, both at absolute positions, and a row folds the tiles that hold a key of its
// own, in order: what a row computes depends on its position alone, not on the rows that share the loads. Values that a row
// may not see are never multiplied in, so what unused cache slots hold does not matter.

constexpr int kTile = 64, kSplit = 512;
constexpr int kRowStride = kMaxHeadDim + 16;  // floats: rows do not fall on the same cache sets
constexpr float kMinusInfinity = -__builtin_inff();

// Running softmax of a group of rows: maximum, sum of weights and weighted sum of values.
struct Fold {
  float max[kAttentionRows], sum[kAttentionRows];
  alignas(64) float acc[kAttentionRows][kRowStride];
};

struct RowGroup {
  const AttentionArgs* args;
  int sequence, kv_head, rows;
  int begin[kAttentionRows], end[kAttentionRows];  // keys that each row sees
  int lowest, highest;                             // over the rows
  float* out[kAttentionRows];
  alignas(64) float q[kAttentionRows][kRowStride];  // times the scale
};

SIMD float exp_of(float x) {
  float v[kLanes];
  f_store(v, v_exp(f_set1(x)));
  return v[0];
}

template <DType T>
SIMD F load_dims(const typename Element<T>::Type* p, int n) {
  if (n >= kLanes) return Element<T>::load(p);
  typename Element<T>::Type whole[kLanes] = {};
  __builtin_memcpy(whole, p, size_t(n) * sizeof(whole[0]));
  return Element<T>::load(whole);
}

// Pointers to the 16-key pieces of a tile, and which of them hold a key that some row sees.
template <DType T>
struct TilePieces {
  using E = typename Element<T>::Type;
  const E* keys[kTile / kKeyTile];
  const E* values[kTile / kKeyTile];
  // The same pieces of the next tile (or this one's again), to be asked for ahead: block tables defeat the hardware's
  // guesses, and a long context is read at the speed of these requests.
  const E* next_keys[kTile / kKeyTile];
  const E* next_values[kTile / kKeyTile];
  int first, last;
};

SIMD void prefetch(const void* p) { __builtin_prefetch(p); }

template <DType T>
static void find_pieces(const RowGroup& g, int tile, TilePieces<T>& out) {
  using E = typename Element<T>::Type;
  const AttentionArgs& a = *g.args;
  const int lo = g.lowest > tile ? g.lowest - tile : 0, hi = g.highest < tile + kTile ? g.highest - tile : kTile;
  out.first = lo / kKeyTile;
  out.last = (hi + kKeyTile - 1) / kKeyTile;
  const size_t d = size_t(a.head_dim), tokens = size_t(a.batch.block_tokens);
  for (int i = out.first; i < out.last; ++i) {
    const auto find = [&](int position, const E*& keys, const E*& values) {
      const size_t offset = block_offset(a.batch, a.cache, g.sequence, position);
      const size_t slot = size_t(position) % tokens, at = (size_t(g.kv_head) * tokens + slot) * d;
      keys = reinterpret_cast<const E*>(static_cast<const char*>(a.cache.keys) + offset) + at;
      values = reinterpret_cast<const E*>(static_cast<const char*>(a.cache.values) + offset) + at;
    };
    const int position = tile + i * kKeyTile;
    find(position, out.keys[i], out.values[i]);
    find(position + kTile < g.highest ? position + kTile : position, out.next_keys[i], out.next_values[i]);
  }
}

// scores[r][0..] of two vectors of keys for R rows: one chain a score, along the dimensions.
template <DType T, int R>
SIMD void score_vectors(const RowGroup& g, const typename Element<T>::Type* k0, const typename Element<T>::Type* k1,
                        const typename Element<T>::Type* next0, const typename Element<T>::Type* next1,
                        float (*scores)[kTile], int at0, int at1) {
  F s0[R], s1[R];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) s0[r] = s1[r] = f_zero();
  for (int d = 0; d < g.args->head_dim; ++d) {
    const F a = Element<T>::load(k0 + size_t(d) * kKeyTile), b = Element<T>::load(k1 + size_t(d) * kKeyTile);
    if (d % 2 == 0) {  // 16 elements are half a line, or all of one
      prefetch(next0 + size_t(d) * kKeyTile);
      prefetch(next1 + size_t(d) * kKeyTile);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const F q = f_set1(g.q[r][d]);
      s0[r] = f_fma(q, a, s0[r]);
      s1[r] = f_fma(q, b, s1[r]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    f_store(scores[r] + at0, s0[r]);
    f_store(scores[r] + at1, s1[r]);
  }
}

template <DType T, int R>
static void score_tile(const RowGroup& g, const TilePieces<T>& p, float (*scores)[kTile]) {
  if constexpr (kLanes == kKeyTile) {
    for (int i = p.first; i < p.last; i += 2) {
      const int j = i + 1 < p.last ? i + 1 : i;
      score_vectors<T, R>(g, p.keys[i], p.keys[j], p.next_keys[i], p.next_keys[j], scores, i * kKeyTile, j * kKeyTile);
    }
  } else {
    for (int i = p.first; i < p.last; ++i)
      score_vectors<T, R>(g, p.keys[i], p.keys[i] + kLanes, p.next_keys[i], p.next_keys[i] + kKeyTile, scores, i * kKeyTile,
                          i * kKeyTile + kLanes);
  }
}

// Turns one row's scores into weights in place; returns what the earlier sums shrink by. Keys [begin, end) of the tile.
static float weigh_row(const AttentionArgs& a, float* scores, int begin, int end, float& max, float& sum) {
  F top = f_set1(kMinusInfinity), v[kTile / kLanes];
  const int first = begin / kLanes, last = (end + kLanes - 1) / kLanes;
  for (int i = first; i < last; ++i) {
    v[i] = f_load(scores + i * kLanes);
    if (a.softcap > 0) v[i] = f_mul(f_set1(a.softcap), v_tanh(f_div(v[i], f_set1(a.softcap))));
    v[i] = f_if_between(begin - i * kLanes, end - i * kLanes, v[i], f_set1(kMinusInfinity));
    top = f_max(top, v[i]);
  }
  const float tile_max = f_max_of(top), new_max = tile_max > max ? tile_max : max;
  const float shrink = exp_of(max - new_max);
  F total = f_zero();
  for (int i = first; i < last; ++i) {
    const F w = v_exp(f_sub(v[i], f_set1(new_max)));
    f_store(scores + i * kLanes, w);
    total = f_add(total, w);
  }
  max = new_max;
  sum = sum * shrink + f_sum(total);
  return shrink;
}

// acc[r][d..] += weights * values over keys [begin, end) of the tile, V vectors of dimensions for R rows at a time; n of the
// dimensions are left (fewer than a vector only when V is 1).
template <DType T, int R, int V>
SIMD void add_dims(const TilePieces<T>& p, int dims, int d, float (*weights)[kTile], float (*acc)[kRowStride], int begin,
                   int end) {
  F sum[R][V];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) sum[r][v] = f_load(acc[r] + d + v * kLanes);
  for (int piece = begin / kKeyTile; piece * kKeyTile < end; ++piece) {
    const int from = begin > piece * kKeyTile ? begin : piece * kKeyTile;
    const int to = end < (piece + 1) * kKeyTile ? end : (piece + 1) * kKeyTile;
    const size_t skip = size_t(from - piece * kKeyTile) * size_t(dims) + size_t(d);
    const auto *value = p.values[piece] + skip, *next = p.next_values[piece] + skip;
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

template <DType T, int R>
static void add_values(const TilePieces<T>& p, int dims, float (*weights)[kTile], float (*acc)[kRowStride], int begin,
                       int end) {
  int d = 0;
  for (; d + 2 * kLanes <= dims; d += 2 * kLanes) add_dims<T, R, 2>(p, dims, d, weights, acc, begin, end);
  for (; d < dims; d += kLanes) add_dims<T, R, 1>(p, dims, d, weights, acc, begin, end);
}

// The keys all rows see together; a row's own at either end apart, in the row's order.
template <DType T, int R>
static void fold_values(const RowGroup& g, const TilePieces<T>& p, float (*weights)[kTile], Fold& f, const int* begin,
                        const int* end) {
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

// Folds the tiles of [split_begin, split_end) into f (which starts empty).
template <DType T, int R>
static void fold_split(const RowGroup& g, int split_begin, int split_end, Fold& f) {
  const int dims = g.args->head_dim;
  for (int r = 0; r < R; ++r) {
    f.max[r] = kMinusInfinity;
    f.sum[r] = 0;
    for (int d = 0; d < dims; d += kLanes) f_store(f.acc[r] + d, f_zero());
  }
  const int start = g.lowest > split_begin ? g.lowest / kTile * kTile : split_begin;
  const int stop = g.highest < split_end ? g.highest : split_end;
  alignas(64) float scores[R][kTile];
  for (int tile = start; tile < stop; tile += kTile) {
    TilePieces<T> pieces;
    find_pieces<T>(g, tile, pieces);
    score_tile<T, R>(g, pieces, scores);
    int begin[R], end[R];
    for (int r = 0; r < R; ++r) {
      begin[r] = g.begin[r] > tile ? g.begin[r] - tile : 0;
      end[r] = g.end[r] < tile + kTile ? g.end[r] - tile : kTile;
      if (begin[r] >= end[r]) {
        begin[r] = end[r] = 0;
        continue;
      }
      const float shrink = weigh_row(*g.args, scores[r], begin[r], end[r], f.max[r], f.sum[r]);
      if (shrink != 1.0f)
        for (int d = 0; d < dims; d += kLanes) f_store(f.acc[r] + d, f_mul(f_load(f.acc[r] + d), f_set1(shrink)));
    }
    fold_values<T, R>(g, pieces, scores, f, begin, end);
  }
}
