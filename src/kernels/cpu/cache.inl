// The cache: how rows of keys and values (quant/cache_row.h) are laid out in a block, and made.
//
// A head's block is a row of pieces of 16 tokens, each its codes and then its scales: [G][block_tokens / 16][piece].
//   keys, floats    [D][16 tokens]: one vector is one dimension of 16 keys
//   keys, bytes     [D / 2][16 tokens][2]: pairs of dimensions, as products of pairs want them
//   keys, int4      a group of tokens is a piece: [D / 4][16 tokens][2]: byte b has dimension 4c + b below and 4c + 2 + b above; then the
//                   scales [D] and minima [D] of dimensions as bytes, and their two units. An open group is a piece of int8, with zeros for
//                   tokens that are not there yet; see close_groups
//   values, floats  [16 tokens][D]
//   values, bytes   [8][D][2 tokens]: pairs of tokens
//   values, int4    [8][D' / 32][16][2 tokens]: dimension i of a group below, 16 + i above
//   scales          [16 tokens]; values of int4: [D' / 32][2: scale, minimum][16 tokens], D' whole groups of 32; bfloat16

constexpr int kKeyTile = kKeyGroup;

// Floats of the cache by type; F16 is clamped, since an infinite key or value would spoil every later token.
template <CacheElement T> struct Element;
template <> struct Element<CacheElement::kF32> {
  using Type = float;
  SIMD F load(const float* p) { return f_load(p); }
  SIMD void store(float* p, F v) { f_store(p, v); }
};
template <> struct Element<CacheElement::kF16> {
  using Type = uint16_t;
  SIMD F load(const uint16_t* p) { return f_from_half(p); }
  SIMD void store(uint16_t* p, F v) { f_to_half(p, f_max(f_set1(-65504.0f), f_min(f_set1(65504.0f), v))); }
};
template <> struct Element<CacheElement::kBF16> {
  using Type = uint16_t;
  SIMD F load(const uint16_t* p) { return f_from_bf16(p); }
  SIMD void store(uint16_t* p, F v) { f_to_bf16(p, v); }
};

// An e4m3's bits, moved to where a bfloat16 has them, are its value times 2^-120, subnormals too. Products with numbers that were
// made 2^60 times larger come out 2^60 times smaller.
constexpr float kFp8Up = 0x1p60f;
SIMD I fp8_pairs(const uint8_t* p) { return i_and(i_pair_shift_left<4>(i_pairs_from_s8(p)), i_set1(int(0x87F087F0))); }

// Byte offset of the block that holds `position` of sequence s.
SIMD size_t block_offset(const BatchView& b, size_t stride, int s, int position) {
  return size_t(b.block_ids[b.block_begin[s] + position / b.block_tokens]) * stride;
}

// Where in a block the piece of KV head g that holds `slot` begins.
SIMD size_t piece_offset(int block_tokens, int g, int slot, size_t row_bytes) {
  return (size_t(g) * size_t(block_tokens) + size_t(slot / kKeyTile * kKeyTile)) * row_bytes;
}
SIMD size_t key_piece_offset(CacheElement e, int d, int block_tokens, int g, int slot) {
  if (!keys_in_groups(e)) return piece_offset(block_tokens, g, slot, cache_row_bytes(e, d));
  return size_t(g) * cache_key_bytes(e, d, block_tokens) + size_t(slot / kKeyGroup) * closed_group_bytes(d);
}

// A piece of int8 of KV head g, of the group that holds `position`, which the step writes in.
SIMD uint8_t* step_piece(const BatchView& b, const CacheView& c, int s, int position, int g, int kv_heads, int d) {
  const size_t group = step_group(b, s) + size_t(position / kKeyGroup - b.positions[b.query_begin[s]] / kKeyGroup);
  return static_cast<uint8_t*>(c.step_keys) + (group * size_t(kv_heads) + size_t(g)) * open_group_bytes(d);
}

// To bfloat16 towards +infinity, of a number that is not negative, or a NaN; and towards -infinity.
SIMD float bf16_up(float v) {
  const uint32_t x = __builtin_bit_cast(uint32_t, v);
  return v == v ? __builtin_bit_cast(float, (x + 0xFFFFu) & 0xFFFF0000u) : v;
}
SIMD float bf16_down(float v) {
  const uint32_t x = __builtin_bit_cast(uint32_t, v);
  return __builtin_bit_cast(float, (v < 0 ? x + 0xFFFFu : x) & 0xFFFF0000u);
}
SIMD uint16_t bf16_bits(float v) { return uint16_t(__builtin_bit_cast(uint32_t, v) >> 16); }

// The largest of |x|, or NaN where the n numbers are not all finite.
SIMD float largest_of(const float* x, int n) {
  F top = f_zero(), poison = f_zero();
  for (int i = 0; i < n; i += kLanes) {
    const F v = f_load_n(x + i, n - i);
    top = f_max(top, f_abs(v));
    poison = f_add(poison, f_sub(v, v));
  }
  return f_max_of(top) + f_sum(poison);
}

// e4m3 of numbers of at most 448: rounded to nearest even, subnormals (multiples of 2^-9) too. As signed bytes.
SIMD I fp8_codes(F v) {
  const I bits = i_from_bits(f_abs(v));
  const I odd = i_and(i_shift_right<20>(bits), i_set1(1));
  const I normal = i_add(i_shift_right<20>(i_add(bits, i_add(odd, i_set1(0x7FFFF)))), i_set1(-(120 << 3)));
  const I small = i_from_float(f_mul(f_abs(v), f_set1(512.0f)));
  const I code = i_from_bits(f_if_less(f_abs(v), f_set1(0x1p-6f), f_from_bits(small), f_from_bits(normal)));
  return i_add(code, i_mul(i_shift_right<31>(i_from_bits(v)), i_set1(-128)));
}

// Codes of a row of fp8 or int8; returns its scale.
template <CacheElement E>
static float encode_bytes(const float* x, int n, int8_t* codes) {
  constexpr float kMost = E == CacheElement::kFp8 ? 448.0f : 127.0f;
  const float scale = bf16_up(largest_of(x, n) / kMost);
  const F factor = f_set1(scale > 0 ? 1 / scale : 0.0f), most = f_set1(kMost), least = f_set1(-kMost);
  for (int i = 0; i < n; i += kLanes) {
    const F v = f_max(least, f_min(most, f_mul(f_load_n(x + i, n - i), factor)));
    i_store_s8(codes + i, E == CacheElement::kFp8 ? fp8_codes(v) : i_from_float(v));
  }
  return scale;
}

// Codes 0..15 of a group of 32 dimensions, n of which are there (the others' are 0).
static void encode_group(const float* x, int n, int8_t* codes, float& scale, float& minimum) {
  const float poison = largest_of(x, n) * 0;
  F low = f_set1(x[0]), high = low;
  for (int i = 0; i < n; i += kLanes) {
    const F v = f_if_between(0, n - i, f_load_n(x + i, n - i), f_set1(x[0]));  // zeros beyond n must not count
    low = f_min(low, v);
    high = f_max(high, v);
  }
  minimum = bf16_down(-f_max_of(f_sub(f_zero(), low)));
  scale = bf16_up((f_max_of(high) - minimum) / 15 + poison);
  const F factor = f_set1(scale > 0 ? 1 / scale : 0.0f);
  for (int i = 0; i < kCacheGroup; i += kLanes) {
    const F v = f_mul(f_sub(f_load_n(x + i, n - i), f_set1(minimum)), factor);
    const F code = f_if_between(0, n - i, f_max(f_zero(), f_min(f_set1(15.0f), v)), f_zero());
    i_store_s8(codes + i, i_from_float(code));
  }
}

// A row's codes and scales as they go into a piece; keys and values differ in the order alone.
template <CacheElement E>
static void put_key(const float* x, int d, uint8_t* piece, int slot) {
  if constexpr (is_float(E)) {
    using Type = typename Element<E>::Type;
    Type row[kMaxHeadDim];
    for (int i = 0; i < d; i += kLanes) Element<E>::store(row + i, f_load_n(x + i, d - i));
    Type* to = reinterpret_cast<Type*>(piece) + slot;
    for (int i = 0; i < d; ++i) to[size_t(i) * kKeyTile] = row[i];
  } else {
    int8_t codes[kMaxHeadDim];
    reinterpret_cast<uint16_t*>(piece + kKeyTile * d)[slot] = bf16_bits(encode_bytes<E>(x, d, codes));
    int8_t* to = reinterpret_cast<int8_t*>(piece) + 2 * slot;
    for (int i = 0; i < d; i += 2, to += 2 * kKeyTile) __builtin_memcpy(to, codes + i, 2);
  }
}

template <CacheElement E>
static void put_value(const float* x, int d, uint8_t* piece, int slot) {
  if constexpr (is_float(E)) {
    using Type = typename Element<E>::Type;
    Type row[kMaxHeadDim];
    for (int i = 0; i < d; i += kLanes) Element<E>::store(row + i, f_load_n(x + i, d - i));
    __builtin_memcpy(piece + size_t(slot) * size_t(d) * sizeof(Type), row, size_t(d) * sizeof(Type));
  } else if constexpr (E == CacheElement::kInt4) {
    const int groups = cache_groups(d);
    uint16_t* scales = reinterpret_cast<uint16_t*>(piece + kKeyTile * cache_code_bytes(E, d)) + slot;
    uint8_t* to = piece + size_t(slot / 2 * groups * kCacheGroup + slot % 2);
    for (int g = 0; g < groups; ++g, to += kCacheGroup) {
      int8_t codes[kCacheGroup];
      float scale, minimum;
      encode_group(x + g * kCacheGroup, d - g * kCacheGroup < kCacheGroup ? d - g * kCacheGroup : kCacheGroup, codes, scale, minimum);
      scales[(2 * g) * kKeyTile] = bf16_bits(scale);
      scales[(2 * g + 1) * kKeyTile] = bf16_bits(minimum);
      for (int i = 0; i < kCacheGroup / 2; ++i) to[2 * i] = uint8_t(codes[i] | codes[kCacheGroup / 2 + i] << 4);
    }
  } else {
    int8_t codes[kMaxHeadDim];
    reinterpret_cast<uint16_t*>(piece + kKeyTile * d)[slot] = bf16_bits(encode_bytes<E>(x, d, codes));
    int8_t* to = reinterpret_cast<int8_t*>(piece) + slot / 2 * 2 * d + slot % 2;
    for (int i = 0; i < d; ++i) to[2 * i] = codes[i];
  }
}

using PutFn = void (*)(const float*, int, uint8_t*, int);
constexpr PutFn kPutKey[] = {put_key<CacheElement::kF32>, put_key<CacheElement::kF16>, put_key<CacheElement::kBF16>,
                             put_key<CacheElement::kFp8>, put_key<CacheElement::kInt8>, put_key<CacheElement::kInt8>};  // int4: the open group's
constexpr PutFn kPutValue[] = {put_value<CacheElement::kF32>, put_value<CacheElement::kF16>, put_value<CacheElement::kBF16>,
                               put_value<CacheElement::kFp8>, put_value<CacheElement::kInt8>, put_value<CacheElement::kInt4>};

// 1, or -1 in lanes whose index has the bit H.
struct MixSigns {
  float of[4][16];
};
constexpr MixSigns mix_signs() {
  MixSigns s{};
  for (int bit = 0; bit < 4; ++bit)
    for (int i = 0; i < 16; ++i) s.of[bit][i] = i >> bit & 1 ? -1.0f : 1.0f;
  return s;
}
alignas(64) constexpr MixSigns kMixSigns = mix_signs();

template <int Bit>
static void mix_within(float* x, int d) {
  const F sign = f_load(kMixSigns.of[Bit]);
  for (int i = 0; i < d; i += kLanes) {
    const F v = f_load_n(x + i, d - i);
    f_store_n(x + i, f_fma(v, sign, f_swap<1 << Bit>(v)), d - i);
  }
}

// As quant::mix_dims.
static void mix_row(float* x, int d) {
  const int n = quant::mixed_block(d);
  mix_within<0>(x, d);
  mix_within<1>(x, d);
  mix_within<2>(x, d);  // heads are of whole eights
  if constexpr (kLanes == 16)
    if (n > 8) mix_within<3>(x, d);
  for (int half = kLanes; half < n; half *= 2)
    for (int i = 0; i < d; i += kLanes) {
      if (i & half) continue;
      const F a = f_load(x + i), b = f_load(x + i + half);
      f_store(x + i, f_add(a, b));
      f_store(x + i + half, f_sub(a, b));
    }
  const F factor = f_set1(1 / __builtin_sqrtf(float(n)));
  for (int i = 0; i < d; i += kLanes) f_store_n(x + i, f_mul(f_load_n(x + i, d - i), factor), d - i);
}
