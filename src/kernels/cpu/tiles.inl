// Register tiles: R vectors of weight rows by M tokens, along the whole of K. Every tile shape folds block by block in the
// same order with the same operations, so a row's result has the same bits in all of them.

struct TileArgs {
  const uint8_t* weights;   // the matrix
  size_t tile_bytes;
  int row_vector;           // first of R vectors of kLanes rows
  int cols;
  const void* panel;        // of M tokens
  const LinearOutput* out;
  int token;                // the panel's first
  size_t next;              // bytes from here to what the task reads next, for kHalf
};
// What a tile asks of memory ahead of its use. kAll: all that comes kAhead bytes later, by the first panel to read the weights.
// kNone: nothing, an earlier panel did. kHalf: every second line of what is next, where two panels read the weights: together
// they ask for it all, and memory works while both compute.
enum class Ahead { kNone, kAll, kHalf };
using TileFn = void (*)(const TileArgs&);

constexpr int kParts = kTileRows / kLanes;  // row vectors a weight tile

// y (+)= acc + bias for R x M vectors; the last row vector may be cut short.
template <int R, int M>
SIMD void store_tile(const TileArgs& t, const F (&acc)[R][M]) {
  const LinearOutput& o = *t.out;
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    const int row = (t.row_vector + r) * kLanes;
    const int n = o.weight.rows - row;
    if (n <= 0) return;
    const F bias = o.bias ? f_load_n(o.bias + row, n) : f_zero();
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      float* y = o.y.floats() + size_t(t.token + m) * size_t(o.y_stride) + row;
      F v = o.bias ? f_add(acc[r][m], bias) : acc[r][m];
      if (o.accumulate) v = f_add(f_load_n(y, n), v);
      if (n >= kLanes) {
        f_store(y, v);
      } else {
        f_store_n(y, v, n);
      }
    }
  }
}

// What one vector of rows reads of a tile: a chunk's first quants, scales and super scales.
struct RowVector {
  const uint8_t *low, *high, *scale, *super;
};

template <WeightType T>
SIMD RowVector row_vector(const TileArgs& t, int r) {
  constexpr ChunkLayout l = chunk_layout(T);
  const int v = t.row_vector + r, part = v % kParts;
  const uint8_t* tile = t.weights + size_t(v / kParts) * t.tile_bytes;
  const int quants = part * kLanes * 4;
  const int scales = part * kLanes * (plane_sizes(T).super != 0 ? 1 : 2);
  const uint8_t* scale = tile + (is_grouped(T) ? l.super + 2 * kTileRows : l.scale) + scales;  // grouped: the zeros
  return {tile + quants, tile + l.high + quants, scale, tile + l.super + part * kLanes * 2};
}

// Memory is asked for this many bytes before it is needed: at 45 GB/s and a hundred nanoseconds away that is 4,500, and beyond
// 8,192 the first-level cache runs short. Past the end of a tile lies the next one.
constexpr int kAhead = 6144;
template <WeightType T>
SIMD void next_chunk(RowVector& v) {
  constexpr int bytes = chunk_layout(T).bytes;
  v.low += bytes;
  v.high += bytes;
  v.scale += bytes;
  v.super += bytes;
}
// A block's share of the chunk that lies ahead.
template <WeightType T, Ahead A>
SIMD void prefetch_block(const RowVector& v, int g, size_t next) {
  constexpr int share = chunk_layout(T).bytes / chunk_blocks(T);
  if constexpr (A == Ahead::kAll) {
#pragma GCC unroll 16
    for (int i = 0; i < (share + 63) / 64; ++i) __builtin_prefetch(v.low + g * share + kAhead + 64 * i);
  } else if constexpr (A == Ahead::kHalf) {  // to the second level: the first is full of this tile
#pragma GCC unroll 16
    for (int i = 0; i < (share + 63) / 64; i += 2) __builtin_prefetch(v.low + g * share + next + 64 * i, 0, 2);
  }
}

// Bit From to place To.
template <int From, int To>
SIMD I move_bits(I x) {
  if constexpr (From < To) return i_shift_left<To - From>(x);
  else return i_shift_right<From - To>(x);
}

// Weights 8j .. 8j+3 and 8j+4 .. 8j+7 of a chunk's block b, as bytes.
template <WeightType T, int J>
SIMD void unpack_8(const RowVector& v, int b, I& w0, I& w1) {
  constexpr PlaneSizes s = plane_sizes(T);
  if constexpr (s.low == 128) {
    const I x = i_load(v.low + size_t(b) * s.low + 64 * (J / 2)), bits = i_set1_byte(3);
    w0 = i_and(i_shift_right<J % 2 * 4>(x), bits);
    w1 = i_and(i_shift_right<J % 2 * 4 + 2>(x), bits);
  } else {
    const I x = i_load(v.low + size_t(b) * s.low + 64 * J), nibble = i_set1_byte(15);
    w0 = i_and(x, nibble);
    w1 = i_and(i_shift_right<4>(x), nibble);
  }
  if constexpr (s.high == 64) {
    constexpr int place = low_bits(T);
    const I h = i_load(v.high + size_t(b) * s.high), bit = i_set1_byte(1 << place);
    w0 = i_or(w0, i_and(move_bits<2 * J, place>(h), bit));
    w1 = i_or(w1, i_and(move_bits<2 * J + 1, place>(h), bit));
  }
  if constexpr (s.high == 128) {  // bits 4(J % 2) .. + 3 to places 4 and 5, twice
    const I h = i_load(v.high + size_t(b) * s.high + 64 * (J / 2)), bits = i_set1_byte(48);
    if constexpr (J % 2 == 0) {
      w0 = i_or(w0, i_and(i_shift_left<4>(h), bits));
      w1 = i_or(w1, i_and(i_shift_left<2>(h), bits));
    } else {
      w0 = i_or(w0, i_and(h, bits));
      w1 = i_or(w1, i_and(i_shift_right<2>(h), bits));
    }
  }
}

// What an unsigned quant is above the signed value, as a power of two; -1 where quants are plain (the format has a minimum).
constexpr int offset_shift(WeightType t) {
  switch (t) {
    case WeightType::kQ3_K: return 2;
    case WeightType::kQ4_0: return 3;
    case WeightType::kQ5_0: return 4;
    case WeightType::kQ6_K: return 5;
    case WeightType::kQ8_0: case WeightType::kIQ4_NL: case WeightType::kIQ4_XS: return kByteNeedsOffset ? 7 : -1;
    default: return is_int4(t) ? 3 : is_int8(t) && kByteNeedsOffset ? 7 : -1;
  }
}
// Whose quants are indices of a table of signed bytes.
constexpr bool is_lookup(WeightType t) { return t == WeightType::kIQ4_NL || t == WeightType::kIQ4_XS; }
// With a scale for 16 k.
constexpr bool halves_scaled(WeightType t) { return t == WeightType::kQ2_K || t == WeightType::kQ3_K || t == WeightType::kQ6_K; }
// With a minimum for a whole block.
constexpr bool has_min(WeightType t) {
  return t == WeightType::kQ4_1 || t == WeightType::kQ5_1 || t == WeightType::kQ4_K || t == WeightType::kQ5_K || is_grouped(t);
}

// Scale and minimum of a chunk's block b, a lane a row. K-quants: d * scale and -(dmin * min), but d and dmin alone where halves have
// scales; grouped integers: -(scale * zero).
template <WeightType T>
SIMD void block_scales(const RowVector& v, int b, F& d, F& min) {
  constexpr PlaneSizes s = plane_sizes(T);
  const uint8_t* scale = v.scale + size_t(b) * s.scale;
  if constexpr (is_grouped(T)) {
    d = f_from_half(v.super);
    min = f_mul(d, f_from_int(i_from_s8(scale)));
  } else if constexpr (s.super != 0) {
    d = f_from_half(v.super);
    if constexpr (T == WeightType::kQ2_K) {
      min = f_from_half(v.super + 32);
    } else if constexpr (T == WeightType::kIQ4_XS) {
      d = f_mul(d, f_from_int(i_from_s8(scale)));
    } else if constexpr (has_min(T)) {
      d = f_mul(d, f_from_int(i_from_u8(scale)));
      min = f_mul(f_from_half(v.super + 32), f_from_int(i_from_u8(scale + 16)));
    }
  } else {
    d = f_from_half(scale);
    if constexpr (has_min(T)) min = f_from_half(scale + 32);
  }
}

// IQ4's table, plus 128.
struct Table4 {
  uint8_t bytes[16];
  constexpr Table4() : bytes{} {
    for (int i = 0; i < 16; ++i) bytes[i] = uint8_t(quant::kNonLinear4[i] + 128);
  }
};
alignas(16) static constexpr Table4 kTable4;

// The same of weights of eight bits plus 128.
template <int J, int R, int M>
SIMD void dot_bytes(I first, I second, int r, const BlockOf<M>& a, I (&sum)[R][M]) {
  const Byte w0 = byte_weights(first), w1 = byte_weights(second);
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) sum[r][m] = dot_4(dot_4(sum[r][m], w0, a.q[m] + 8 * J), w1, a.q[m] + 8 * J + 4);
}
// Products of one pair of quant vectors (J of 4) with all tokens.
template <WeightType T, int J, int R, int M>
SIMD void dot_step(const RowVector (&rows)[R], int b, const BlockOf<M>& a, I (&sum)[R][M]) {
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    if constexpr (plane_sizes(T).low == 512) {
      const uint8_t* low = rows[r].low + size_t(b) * 512 + 128 * J;
      dot_bytes<J, R, M>(i_load(low), i_load(low + 64), r, a, sum);
      continue;
    }
    I w0, w1;
    unpack_8<T, J>(rows[r], b, w0, w1);
    if constexpr (is_lookup(T)) {
      const I table = i_table(kTable4.bytes);
      dot_bytes<J, R, M>(i_lookup(table, w0), i_lookup(table, w1), r, a, sum);
    } else {
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) sum[r][m] = dot_8(sum[r][m], w0, w1, a.q[m] + 8 * J);
    }
  }
}

template <int Shift, int R, int M>
SIMD void start_sums(const int32_t* minus_sum, I (&sum)[R][M]) {
#pragma GCC unroll 8
  for (int m = 0; m < M; ++m) {
    I start = i_zero();
    if constexpr (Shift >= 0) start = i_shift_left<Shift < 0 ? 0 : Shift>(i_set1(minus_sum[m]));
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) sum[r][m] = start;
  }
}

// Scales of the two halves of a block; Q2_K's are the lower nibbles.
template <WeightType T>
SIMD void half_scales(const RowVector& v, int b, I& s0, I& s1) {
  const uint8_t* scale = v.scale + size_t(b) * 32;
  if constexpr (T == WeightType::kQ2_K) {
    s0 = i_and(i_from_u8(scale), i_set1(15));
    s1 = i_and(i_from_u8(scale + 16), i_set1(15));
  } else {
    s0 = i_from_s8(scale);
    s1 = i_from_s8(scale + 16);
  }
}
// Q2_K: minimums of the two halves times minus their inputs' sums, which fit 16 bits.
template <int M>
SIMD F half_minimums(const RowVector& v, int b, const BlockOf<M>& a, int m) {
  const uint8_t* scale = v.scale + size_t(b) * 32;
  const I min = i_or(i_shift_right<4>(i_from_u8(scale)), i_shift_left<16>(i_shift_right<4>(i_from_u8(scale + 16))));
  const auto sums = uint32_t(uint16_t(a.minus_half[0][m])) | uint32_t(a.minus_half[1][m]) << 16;
  return f_from_int(i_dot_pairs(i_zero(), min, i_set1(int(sums))));
}

// One block of 32 k: exact integer sums, then the scales.
template <WeightType T, int R, int M>
SIMD void quant_block(const RowVector (&rows)[R], int b, const BlockOf<M>& a, F (&acc)[R][M]) {
  I sum[R][M];
  if constexpr (halves_scaled(T)) {  // a scale for 16 k: weighted integer halves, still exact
    I half[R][M];
    start_sums<offset_shift(T)>(a.minus_half[0], half);
    dot_step<T, 0>(rows, b, a, half);
    dot_step<T, 1>(rows, b, a, half);
    start_sums<offset_shift(T)>(a.minus_half[1], sum);
    dot_step<T, 2>(rows, b, a, sum);
    dot_step<T, 3>(rows, b, a, sum);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      I s0, s1;
      half_scales<T>(rows[r], b, s0, s1);
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) sum[r][m] = i_add(i_mul(half[r][m], s0), i_mul(sum[r][m], s1));
    }
  } else {
    start_sums<offset_shift(T)>(a.minus_sum, sum);
    dot_step<T, 0>(rows, b, a, sum);
    dot_step<T, 1>(rows, b, a, sum);
    dot_step<T, 2>(rows, b, a, sum);
    dot_step<T, 3>(rows, b, a, sum);
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    F d, min;
    block_scales<T>(rows[r], b, d, min);
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      acc[r][m] = f_fma(f_from_int(sum[r][m]), f_mul(d, f_set1(a.scale[m])), acc[r][m]);
      if constexpr (T == WeightType::kQ4_1 || T == WeightType::kQ5_1) {
        acc[r][m] = f_fma(min, f_set1(a.scaled_sum[m]), acc[r][m]);
      } else if constexpr (T == WeightType::kQ2_K) {
        acc[r][m] = f_fma(half_minimums<M>(rows[r], b, a, m), f_mul(min, f_set1(a.scale[m])), acc[r][m]);
      } else if constexpr (has_min(T)) {
        acc[r][m] = f_fnma(min, f_set1(a.scaled_sum[m]), acc[r][m]);
      }
    }
  }
}

template <WeightType T, int R, int M, Ahead A>
static void quant_tile(const TileArgs& t) {
  constexpr int kChunk = chunk_blocks(T);
  RowVector rows[R];
  for (int r = 0; r < R; ++r) rows[r] = row_vector<T>(t, r);
  const auto* a = static_cast<const BlockOf<M>*>(t.panel);
  F acc[R][M];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) acc[r][m] = f_zero();
  for (int left = t.cols / kBlock; left > 0; left -= kChunk) {
    for (int b = 0; b < kChunk && b < left; ++b, ++a) {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) prefetch_block<T, A>(rows[r], b, t.next);
      quant_block<T, R, M>(rows, b, *a, acc);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) next_chunk<T>(rows[r]);
  }
  store_tile<R, M>(t, acc);
}

template <WeightType T>
SIMD F float_weights(const uint8_t* p, int k) {
  if constexpr (T == WeightType::kF32) return f_load(reinterpret_cast<const float*>(p) + size_t(k) * kTileRows);
  if constexpr (T == WeightType::kF16) return f_from_half(p + size_t(k) * kTileRows * 2);
}
// Weights k and k + 1, k even.
template <WeightType T>
SIMD void float_weight_pair(const uint8_t* p, int k, F& w0, F& w1) {
  if constexpr (T == WeightType::kBF16) {
    const I pairs = i_load(p + size_t(k) * kTileRows * 2);
    w0 = f_first_of_pair(pairs);
    w1 = f_second_of_pair(pairs);
  } else {
    w0 = float_weights<T>(p, k);
    w1 = float_weights<T>(p, k + 1);
  }
}

// Float weights: even and odd k in chains of their own, added at the end.
template <WeightType T, int R, int M, Ahead A>
static void float_tile(const TileArgs& t) {
  constexpr int kElement = T == WeightType::kF32 ? 4 : 2;
  const uint8_t* rows[R];
  for (int r = 0; r < R; ++r) {
    const int v = t.row_vector + r;
    rows[r] = t.weights + size_t(v / kParts) * t.tile_bytes + v % kParts * kLanes * (T == WeightType::kF16 ? 2 : 4);
  }
  const auto* x = static_cast<const float*>(t.panel);
  F even[R][M], odd[R][M];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) even[r][m] = odd[r][m] = f_zero();
  int k = 0;
  for (; k + 2 <= t.cols; k += 2) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      F w0, w1;
      float_weight_pair<T>(rows[r], k, w0, w1);
      if constexpr (A == Ahead::kAll) __builtin_prefetch(rows[r] + size_t(k) * kTileRows * kElement + kAhead);
      if constexpr (A == Ahead::kHalf) __builtin_prefetch(rows[r] + size_t(k) * kTileRows * kElement + t.next, 0, 2);
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) {
        even[r][m] = f_fma(w0, f_set1(x[size_t(k) * M + m]), even[r][m]);
        odd[r][m] = f_fma(w1, f_set1(x[size_t(k + 1) * M + m]), odd[r][m]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
    F w = f_zero(), beyond;
    if constexpr (T == WeightType::kBF16) {
      if (k < t.cols) float_weight_pair<T>(rows[r], k, w, beyond);
    } else {
      if (k < t.cols) w = float_weights<T>(rows[r], k);
    }
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) {
      if (k < t.cols) even[r][m] = f_fma(w, f_set1(x[size_t(k) * M + m]), even[r][m]);
      even[r][m] = f_add(even[r][m], odd[r][m]);
    }
  }
  store_tile<R, M>(t, even);
}

// FP8 weights with a scale a chunk: widened and scaled once for all tokens, then as floats.
template <WeightType T, int R, int M, Ahead A>
static void fp8_tile(const TileArgs& t) {
  constexpr int kUnit = side_unit(T), kChunkBytes = kUnit * kTileRows + kTileRows * 4;
  const uint8_t* rows[R];
  for (int r = 0; r < R; ++r) {
    const int v = t.row_vector + r;
    rows[r] = t.weights + size_t(v / kParts) * t.tile_bytes + v % kParts * kLanes;
  }
  const auto* x = static_cast<const float*>(t.panel);
  F even[R][M], odd[R][M];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) even[r][m] = odd[r][m] = f_zero();
  for (int k0 = 0; k0 < t.cols; k0 += kUnit) {
    F scale[R];
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const int part = (t.row_vector + r) % kParts * kLanes;
      scale[r] = f_load(reinterpret_cast<const float*>(rows[r] - part + kUnit * kTileRows) + part);
    }
    for (int k = 0; k < kUnit; k += 2, x += 2 * M) {
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const uint8_t* p = rows[r] + k * kTileRows;
        if constexpr (A == Ahead::kAll) __builtin_prefetch(p + kAhead);
        if constexpr (A == Ahead::kHalf) __builtin_prefetch(p + t.next, 0, 2);
        const F w0 = f_mul(f_from_e4m3(p), scale[r]), w1 = f_mul(f_from_e4m3(p + kTileRows), scale[r]);
#pragma GCC unroll 8
        for (int m = 0; m < M; ++m) {
          even[r][m] = f_fma(w0, f_set1(x[m]), even[r][m]);
          odd[r][m] = f_fma(w1, f_set1(x[M + m]), odd[r][m]);
        }
      }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) rows[r] += kChunkBytes;
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) even[r][m] = f_add(even[r][m], odd[r][m]);
  store_tile<R, M>(t, even);
}

// Pairs of bfloat16 multiplied at once: even and odd pairs in chains of their own, added at the end.
template <int R, int M, Ahead A>
static void pair_tile(const TileArgs& t) {
  const uint8_t* rows[R];
  for (int r = 0; r < R; ++r) rows[r] = t.weights + size_t(t.row_vector + r) * t.tile_bytes;
  const auto* x = static_cast<const uint32_t*>(t.panel);
  const int pairs = (t.cols + 1) / 2;
  F chain[2][R][M];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) chain[0][r][m] = chain[1][r][m] = f_zero();
  const auto step = [&](int k, bool even, F (&acc)[R][M]) __attribute__((always_inline)) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const I w = i_load(rows[r] + size_t(k) * kTileRows * 4);
      if constexpr (A == Ahead::kAll) __builtin_prefetch(rows[r] + size_t(k) * kTileRows * 4 + kAhead);
      if (A == Ahead::kHalf && even) __builtin_prefetch(rows[r] + size_t(k) * kTileRows * 4 + t.next, 0, 2);
#pragma GCC unroll 8
      for (int m = 0; m < M; ++m) acc[r][m] = dot_pair(acc[r][m], w, x[size_t(k) * M + m]);
    }
  };
  int k = 0;
  for (; k + 2 <= pairs; k += 2) {
    step(k, true, chain[0]);
    step(k + 1, false, chain[1]);
  }
  if (k < pairs) step(k, true, chain[0]);
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int m = 0; m < M; ++m) chain[0][r][m] = f_add(chain[0][r][m], chain[1][r][m]);
  store_tile<R, M>(t, chain[0]);
}
