// Vectors of one instruction set for the template kernels: AVX-512 with VNNI, 16 lanes; with BF16 where the file is
// compiled for it. Included inside the namespaces of isa_avx512.cpp and isa_avx512bf16.cpp only. Integer sums are exact in every implementation of this interface.
constexpr int kLanes = 16;
constexpr int kQuantTokens = 8;   // tokens a register tile, quantised weights
constexpr int kFloatTokens = 8;   // ... float weights
constexpr int kRowVectors1 = 1;   // row vectors a tile of one token
constexpr int kAttentionRows = 8; // query rows that share a key load
using F = __m512;
using I = __m512i;
using Mask = __mmask16;
#define SIMD static inline __attribute__((always_inline))

SIMD F f_load(const float* p) { return _mm512_loadu_ps(p); }
SIMD void f_store(float* p, F v) { _mm512_storeu_ps(p, v); }
SIMD Mask lanes_below(int n) { return n >= 16 ? Mask(0xFFFF) : n <= 0 ? Mask(0) : Mask((1u << n) - 1); }
SIMD F f_load_n(const float* p, int n) { return _mm512_maskz_loadu_ps(lanes_below(n), p); }
SIMD void f_store_n(float* p, F v, int n) { _mm512_mask_storeu_ps(p, lanes_below(n), v); }
SIMD F f_set1(float x) { return _mm512_set1_ps(x); }
SIMD F f_zero() { return _mm512_setzero_ps(); }
SIMD F f_add(F a, F b) { return _mm512_add_ps(a, b); }
SIMD F f_sub(F a, F b) { return _mm512_sub_ps(a, b); }
SIMD F f_mul(F a, F b) { return _mm512_mul_ps(a, b); }
SIMD F f_div(F a, F b) { return _mm512_div_ps(a, b); }
SIMD F f_fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
SIMD F f_fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }
SIMD F f_min(F a, F b) { return _mm512_min_ps(a, b); }  // the second where either is NaN
SIMD F f_max(F a, F b) { return _mm512_max_ps(a, b); }
SIMD F f_abs(F a) { return _mm512_abs_ps(a); }
SIMD F f_round(F a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
SIMD F f_if_less(F a, F b, F then, F other) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), other, then);
}
// then where begin <= lane < end, else other.
SIMD F f_if_between(int begin, int end, F then, F other) {
  return _mm512_mask_blend_ps(Mask(lanes_below(end) & ~lanes_below(begin)), other, then);
}
SIMD float f_sum(F v) { return _mm512_reduce_add_ps(v); }
SIMD float f_max_of(F v) { return _mm512_reduce_max_ps(v); }
SIMD F f_from_half(const void* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p))); }
// FP8 e4m3 times 2^-8: its bits are a half's of another bias, subnormals and all. Not NaN, which becomes 480 * 2^-8.
SIMD F f_from_e4m3(const void* p) {
  const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(static_cast<const __m128i*>(p)));  // the sign stands in all upper bits
  return _mm512_cvtph_ps(_mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(short(0xBFFF))));
}
// p[index[0]], p[index[1]] ...
SIMD F f_gather(const float* p, const int32_t* index) { return _mm512_i32gather_ps(_mm512_loadu_si512(index), p, 4); }
SIMD void f_to_half(void* p, F v) {
  _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
SIMD F f_from_bf16(const void* p) {
  const I bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
  return _mm512_castsi512_ps(_mm512_slli_epi32(bits, 16));
}
SIMD __m256i f_as_bf16(F v) {  // round to nearest even; NaN is not expected here
  const I x = _mm512_castps_si512(v);
  const I odd = _mm512_and_si512(_mm512_srli_epi32(x, 16), _mm512_set1_epi32(1));
  const I r = _mm512_srli_epi32(_mm512_add_epi32(x, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF))), 16);
  return _mm512_cvtepi32_epi16(r);
}
SIMD void f_to_bf16(void* p, F v) { _mm256_storeu_si256(static_cast<__m256i*>(p), f_as_bf16(v)); }

SIMD I i_load(const void* p) { return _mm512_loadu_si512(p); }
SIMD I i_zero() { return _mm512_setzero_si512(); }
SIMD I i_set1(int x) { return _mm512_set1_epi32(x); }
SIMD I i_add(I a, I b) { return _mm512_add_epi32(a, b); }
SIMD I i_mul(I a, I b) { return _mm512_mullo_epi32(a, b); }
SIMD I i_and(I a, I b) { return _mm512_and_si512(a, b); }
SIMD I i_or(I a, I b) { return _mm512_or_si512(a, b); }
SIMD I i_set1_byte(int x) { return _mm512_set1_epi8(char(x)); }
// Bytes of a table of 16 by bytes 0..15.
SIMD I i_table(const uint8_t* p) { return _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
SIMD I i_lookup(I table, I index) { return _mm512_shuffle_epi8(table, index); }
template <int N> SIMD I i_shift_left(I a) { return _mm512_slli_epi32(a, N); }
template <int N> SIMD I i_shift_right(I a) { return _mm512_srli_epi32(a, N); }
SIMD F f_from_int(I a) { return _mm512_cvtepi32_ps(a); }
SIMD I i_from_float(F a) { return _mm512_cvtps_epi32(a); }  // round to nearest even
SIMD F f_from_bits(I a) { return _mm512_castsi512_ps(a); }
SIMD I i_from_u8(const uint8_t* p) { return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
SIMD I i_from_s8(const uint8_t* p) { return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
SIMD void i_store_s8(int8_t* p, I v) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(v)); }
// The sums of all lanes of two vectors.
SIMD void i_sums(I v, I w, int& s0, int& s1) {
  const __m256i a = _mm256_add_epi32(_mm512_castsi512_si256(v), _mm512_extracti64x4_epi64(v, 1));
  const __m256i b = _mm256_add_epi32(_mm512_castsi512_si256(w), _mm512_extracti64x4_epi64(w, 1));
  const __m256i pairs = _mm256_hadd_epi32(a, b), fours = _mm256_hadd_epi32(pairs, pairs);
  const __m128i x = _mm_add_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
  s0 = _mm_cvtsi128_si32(x);
  s1 = _mm_extract_epi32(x, 1);
}

SIMD I i_set1_at(const int8_t* p) {
  int x;
  __builtin_memcpy(&x, p, 4);
  return _mm512_set1_epi32(x);
}
// acc + the 8 products of each lane's 4 + 4 weights (unsigned, at most 63) with 8 activations.
SIMD I dot_8(I acc, I w0, I w1, const int8_t* a) {
  return _mm512_dpbusd_epi32(_mm512_dpbusd_epi32(acc, w0, i_set1_at(a)), w1, i_set1_at(a + 4));
}
// Eight-bit weights stored as q + 128: the start value takes 128 * sum(a) off, so the quants go in as they are.
struct Byte { I w; };
constexpr bool kByteNeedsOffset = true;
SIMD Byte byte_weights(I w) { return {w}; }
SIMD I dot_4(I acc, Byte w, const int8_t* a) { return _mm512_dpbusd_epi32(acc, w.w, i_set1_at(a)); }

SIMD I i_from_bits(F a) { return _mm512_castps_si512(a); }
// Pairs of 16-bit integers, as 32-bit lanes: from bytes; what stays within them; acc + both products of every lane's pairs.
SIMD I i_pairs_from_s8(const uint8_t* p) { return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
SIMD I i_pairs_from_u8(const uint8_t* p) { return _mm512_cvtepu8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))); }
template <int N> SIMD I i_pair_shift_left(I a) { return _mm512_slli_epi16(a, N); }
template <int N> SIMD I i_pair_shift_right(I a) { return _mm512_srli_epi16(a, N); }
// Products of pairs less 15 bits, rounded.
SIMD I i_pair_mul_high(I a, I b) { return _mm512_mulhrs_epi16(a, b); }
SIMD I i_dot_pairs(I acc, I a, I b) { return _mm512_dpwssd_epi32(acc, a, b); }
SIMD void i_store_s16(int16_t* p, I v) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(v)); }
// Lane i gets lane i ^ H.
template <int H> SIMD F f_swap(F a) {
  if constexpr (H == 1) return _mm512_permute_ps(a, 0xB1);
  else if constexpr (H == 2) return _mm512_permute_ps(a, 0x4E);
  else return _mm512_shuffle_f32x4(a, a, H == 4 ? 0xB1 : 0x4E);
}

// Pairs of bfloat16, as 32-bit lanes: the first (lower) and the second as floats.
SIMD F f_first_of_pair(I pairs) { return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)); }
SIMD F f_second_of_pair(I pairs) { return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(int(0xFFFF0000)))); }
#ifdef __AVX512BF16__
constexpr bool kPairProducts = true;
// Eight tokens' eight pairs each, turned: out[pair][token].
SIMD void store_turned(const F (&v)[8], uint32_t* out) {
  __m256i r[8], s[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) r[i] = f_as_bf16(v[i]);
#pragma GCC unroll 8
  for (int i = 0; i < 8; i += 2) {  // pairs of rows, then of pairs, then of halves
    s[i] = _mm256_unpacklo_epi32(r[i], r[i + 1]);
    s[i + 1] = _mm256_unpackhi_epi32(r[i], r[i + 1]);
  }
#pragma GCC unroll 8
  for (int i = 0; i < 8; i += 4)
#pragma GCC unroll 2
    for (int k = 0; k < 2; ++k) {
      r[i + 2 * k] = _mm256_unpacklo_epi64(s[i + k], s[i + 2 + k]);
      r[i + 2 * k + 1] = _mm256_unpackhi_epi64(s[i + k], s[i + 2 + k]);
    }
#pragma GCC unroll 8
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 8 * i), _mm256_permute2x128_si256(r[i], r[i + 4], 0x20));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 8 * (i + 4)), _mm256_permute2x128_si256(r[i], r[i + 4], 0x31));
  }
}
// acc + both products of every lane's pair with the pair x.
SIMD F dot_pair(F acc, I w, uint32_t x) { return _mm512_dpbf16_ps(acc, (__m512bh)w, (__m512bh)_mm512_set1_epi32(int(x))); }
#else
constexpr bool kPairProducts = false;
SIMD void store_turned(const F (&)[8], uint32_t*) {}
SIMD F dot_pair(F acc, I, uint32_t) { return acc; }
#endif
