// Vectors of one instruction set for the template kernels: AVX2 with FMA and F16C, 8 lanes - half a weight tile; with
// AVX-VNNI where the file is compiled for it. Included inside the namespaces of isa_avx2.cpp and isa_avxvnni.cpp only. Integer sums are exact in every implementation of this interface.
constexpr int kLanes = 8;
constexpr int kQuantTokens = 4;
constexpr int kFloatTokens = 4;
constexpr int kRowVectors1 = 2;
constexpr int kAttentionRows = 4;
using F = __m256;
using I = __m256i;
#define SIMD static inline __attribute__((always_inline))

SIMD I lane_index() { return _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7); }
SIMD I lanes_below(int n) { return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), lane_index()); }
SIMD F f_load(const float* p) { return _mm256_loadu_ps(p); }
SIMD void f_store(float* p, F v) { _mm256_storeu_ps(p, v); }
SIMD F f_load_n(const float* p, int n) { return _mm256_maskload_ps(p, lanes_below(n)); }
SIMD void f_store_n(float* p, F v, int n) { _mm256_maskstore_ps(p, lanes_below(n), v); }
SIMD F f_set1(float x) { return _mm256_set1_ps(x); }
SIMD F f_zero() { return _mm256_setzero_ps(); }
SIMD F f_add(F a, F b) { return _mm256_add_ps(a, b); }
SIMD F f_sub(F a, F b) { return _mm256_sub_ps(a, b); }
SIMD F f_mul(F a, F b) { return _mm256_mul_ps(a, b); }
SIMD F f_div(F a, F b) { return _mm256_div_ps(a, b); }
SIMD F f_fma(F a, F b, F c) { return _mm256_fmadd_ps(a, b, c); }
SIMD F f_fnma(F a, F b, F c) { return _mm256_fnmadd_ps(a, b, c); }
SIMD F f_min(F a, F b) { return _mm256_min_ps(a, b); }  // the second where either is NaN
SIMD F f_max(F a, F b) { return _mm256_max_ps(a, b); }
SIMD F f_abs(F a) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), a); }
SIMD F f_round(F a) { return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
SIMD F f_if_less(F a, F b, F then, F other) { return _mm256_blendv_ps(other, then, _mm256_cmp_ps(a, b, _CMP_LT_OQ)); }
// then where begin <= lane < end, else other.
SIMD F f_if_between(int begin, int end, F then, F other) {
  return _mm256_blendv_ps(other, then, _mm256_castsi256_ps(_mm256_andnot_si256(lanes_below(begin), lanes_below(end))));
}
SIMD float f_sum(F v) {
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
SIMD float f_max_of(F v) {
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}
SIMD F f_from_half(const void* p) { return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p))); }
// FP8 e4m3 times 2^-8: its bits are a half's of another bias, subnormals and all. Not NaN, which becomes 480 * 2^-8.
SIMD F f_from_e4m3(const void* p) {
  const __m128i wide = _mm_cvtepi8_epi16(_mm_loadl_epi64(static_cast<const __m128i*>(p)));  // the sign stands in all upper bits
  return _mm256_cvtph_ps(_mm_and_si128(_mm_slli_epi16(wide, 7), _mm_set1_epi16(short(0xBFFF))));
}
// p[index[0]], p[index[1]] ...
SIMD F f_gather(const float* p, const int32_t* index) {
  return _mm256_i32gather_ps(p, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(index)), 4);
}
SIMD void f_to_half(void* p, F v) {
  _mm_storeu_si128(static_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
SIMD F f_from_bf16(const void* p) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i*>(p))), 16));
}
SIMD void f_to_bf16(void* p, F v) {  // round to nearest even; NaN is not expected here
  const I x = _mm256_castps_si256(v);
  const I odd = _mm256_and_si256(_mm256_srli_epi32(x, 16), _mm256_set1_epi32(1));
  const I r = _mm256_srli_epi32(_mm256_add_epi32(x, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF))), 16);
  _mm_storeu_si128(static_cast<__m128i*>(p), _mm_packus_epi32(_mm256_castsi256_si128(r), _mm256_extracti128_si256(r, 1)));
}

SIMD I i_load(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
SIMD I i_zero() { return _mm256_setzero_si256(); }
SIMD I i_set1(int x) { return _mm256_set1_epi32(x); }
SIMD I i_add(I a, I b) { return _mm256_add_epi32(a, b); }
SIMD I i_mul(I a, I b) { return _mm256_mullo_epi32(a, b); }
SIMD I i_and(I a, I b) { return _mm256_and_si256(a, b); }
SIMD I i_or(I a, I b) { return _mm256_or_si256(a, b); }
SIMD I i_set1_byte(int x) { return _mm256_set1_epi8(char(x)); }
// Bytes of a table of 16 by bytes 0..15.
SIMD I i_table(const uint8_t* p) { return _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
SIMD I i_lookup(I table, I index) { return _mm256_shuffle_epi8(table, index); }
template <int N> SIMD I i_shift_left(I a) { return _mm256_slli_epi32(a, N); }
template <int N> SIMD I i_shift_right(I a) { return _mm256_srli_epi32(a, N); }
SIMD F f_from_int(I a) { return _mm256_cvtepi32_ps(a); }
SIMD I i_from_float(F a) { return _mm256_cvtps_epi32(a); }  // round to nearest even
SIMD F f_from_bits(I a) { return _mm256_castsi256_ps(a); }
SIMD I i_from_u8(const uint8_t* p) { return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))); }
SIMD I i_from_s8(const uint8_t* p) { return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))); }
SIMD void i_store_s8(int8_t* p, I v) {
  const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(words, words));
}
// The sums of all lanes of two vectors.
SIMD void i_sums(I a, I b, int& s0, int& s1) {
  const __m256i pairs = _mm256_hadd_epi32(a, b), fours = _mm256_hadd_epi32(pairs, pairs);
  const __m128i x = _mm_add_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
  s0 = _mm_cvtsi128_si32(x);
  s1 = _mm_extract_epi32(x, 1);
}

SIMD I i_set1_at(const int8_t* p) {
  int x;
  __builtin_memcpy(&x, p, 4);
  return _mm256_set1_epi32(x);
}
#ifdef __AVXVNNI__
SIMD I dot_8(I acc, I w0, I w1, const int8_t* a) {
  return _mm256_dpbusd_avx_epi32(_mm256_dpbusd_avx_epi32(acc, w0, i_set1_at(a)), w1, i_set1_at(a + 4));
}
// Eight-bit weights stored as q + 128: the start value takes 128 * sum(a) off, so the quants go in as they are.
struct Byte { I w; };
constexpr bool kByteNeedsOffset = true;
SIMD Byte byte_weights(I w) { return {w}; }
SIMD I dot_4(I acc, Byte w, const int8_t* a) { return _mm256_dpbusd_avx_epi32(acc, w.w, i_set1_at(a)); }
#else
// acc + the 8 products of each lane's 4 + 4 weights (unsigned, at most 63) with 8 activations. Words hold 4 products:
// 4 * 63 * 127 = 32004, so nothing saturates.
SIMD I dot_8(I acc, I w0, I w1, const int8_t* a) {
  const I words = _mm256_add_epi16(_mm256_maddubs_epi16(w0, i_set1_at(a)), _mm256_maddubs_epi16(w1, i_set1_at(a + 4)));
  return _mm256_add_epi32(acc, _mm256_madd_epi16(words, _mm256_set1_epi16(1)));
}
// Eight-bit weights stored as q + 128: as |q| and its sign, since words of q + 128 would saturate (2 * 128 * 127 does not).
struct Byte { I q, magnitude; };
constexpr bool kByteNeedsOffset = false;
SIMD Byte byte_weights(I w) {
  const I q = _mm256_xor_si256(w, _mm256_set1_epi8(char(0x80)));
  return {q, _mm256_abs_epi8(q)};
}
SIMD I dot_4(I acc, const Byte& w, const int8_t* a) {
  const I words = _mm256_maddubs_epi16(w.magnitude, _mm256_sign_epi8(i_set1_at(a), w.q));
  return _mm256_add_epi32(acc, _mm256_madd_epi16(words, _mm256_set1_epi16(1)));
}
#endif

SIMD I i_from_bits(F a) { return _mm256_castps_si256(a); }
// Pairs of 16-bit integers, as 32-bit lanes: from bytes; what stays within them; acc + both products of every lane's pairs.
SIMD I i_pairs_from_s8(const uint8_t* p) { return _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
SIMD I i_pairs_from_u8(const uint8_t* p) { return _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
template <int N> SIMD I i_pair_shift_left(I a) { return _mm256_slli_epi16(a, N); }
template <int N> SIMD I i_pair_shift_right(I a) { return _mm256_srli_epi16(a, N); }
// Products of pairs less 15 bits, rounded.
SIMD I i_pair_mul_high(I a, I b) { return _mm256_mulhrs_epi16(a, b); }
#ifdef __AVXVNNI__
SIMD I i_dot_pairs(I acc, I a, I b) { return _mm256_dpwssd_avx_epi32(acc, a, b); }
#else
SIMD I i_dot_pairs(I acc, I a, I b) { return _mm256_add_epi32(acc, _mm256_madd_epi16(a, b)); }
#endif
SIMD void i_store_s16(int16_t* p, I v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm_packs_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1)));
}
// Lane i gets lane i ^ H.
template <int H> SIMD F f_swap(F a) {
  if constexpr (H == 1) return _mm256_permute_ps(a, 0xB1);
  else if constexpr (H == 2) return _mm256_permute_ps(a, 0x4E);
  else return _mm256_permute2f128_ps(a, a, 1);
}

// Pairs of bfloat16, as 32-bit lanes: the first (lower) and the second as floats.
SIMD F f_first_of_pair(I pairs) { return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)); }
SIMD F f_second_of_pair(I pairs) { return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(int(0xFFFF0000)))); }
constexpr bool kPairProducts = false;
SIMD void store_turned(const F (&)[8], uint32_t*) {}
SIMD F dot_pair(F acc, I, uint32_t) { return acc; }
