// What lies in the cache and where. A block's keys, and its values, are rows [G][block_tokens][D] of an element: float, f16, bf16,
// or a code with a scale a row (tensor/cache_type.h); all rows' scales, bfloat16, stand behind the codes: [G][block_tokens].
// Products take a code as f16, which holds each exactly.
#pragma once
#include "kernels/cuda/e4m3.cuh"
#include "kernels/cuda/half_types.cuh"

namespace sluice::kernels::cuda {

struct E4m3 { uint8_t bits; };
struct Int8 { int8_t value; };

template <class T> constexpr bool kIsCode = false;
template <> constexpr bool kIsCode<E4m3> = true;
template <> constexpr bool kIsCode<Int8> = true;
// Keys whose dimensions are mixed (quant/cache_row.h), and queries with them.
template <class T> constexpr bool kIsMixed = false;
template <> constexpr bool kIsMixed<Int8> = true;

// What products take an element as.
template <class T> struct Half { using Type = T; };
template <> struct Half<E4m3> { using Type = __half; };
template <> struct Half<Int8> { using Type = __half; };
template <class T> using HalfOf = typename Half<T>::Type;

__device__ inline float to_float(E4m3 v) {
  const uint32_t pair = halves_of_codes(uint16_t(v.bits));
  return __low2float(reinterpret_cast<const __half2&>(pair));
}
__device__ inline float to_float(Int8 v) { return float(v.value); }

// fn.template operator()<T>() for an element known at run time.
template <class Fn>
void with_element(CacheElement e, Fn fn) {
  switch (e) {
    case CacheElement::kF32: return fn.template operator()<float>();
    case CacheElement::kF16: return fn.template operator()<__half>();
    case CacheElement::kBF16: return fn.template operator()<__nv_bfloat16>();
    case CacheElement::kFp8: return fn.template operator()<E4m3>();
    case CacheElement::kInt8: return fn.template operator()<Int8>();
    case CacheElement::kInt4: return;  // the table's cache_type refuses it
  }
}

// The first two codes of a word as f16, and the other two.
template <class T> __device__ void four_halves(uint32_t codes, uint32_t& low, uint32_t& high);
template <>
__device__ inline void four_halves<E4m3>(uint32_t codes, uint32_t& low, uint32_t& high) {
  halves_of_codes(codes, low, high);
}
template <>
__device__ inline void four_halves<Int8>(uint32_t codes, uint32_t& low, uint32_t& high) {
  constexpr uint32_t kMagic = 0x64646464;                        // of f16: 1,024 and a byte
  const uint32_t biased = codes ^ 0x80808080u, offset = 0x64806480;  // 1,152
  low = __byte_perm(biased, kMagic, 0x4140), high = __byte_perm(biased, kMagic, 0x4342);
  low = f16_pair_less(low, offset), high = f16_pair_less(high, offset);
}
// Eight codes as f16.
template <class T>
__device__ inline uint4 eight_halves(uint2 codes) {
  uint4 v;
  four_halves<T>(codes.x, v.x, v.y);
  four_halves<T>(codes.y, v.z, v.w);
  return v;
}

// A row's scale from its largest magnitude's bits, and what its numbers are multiplied with: quant/cache_row.cpp, bit for bit.
struct RowScale {
  uint16_t bits;  // bfloat16
  float factor;
};
template <class T>
__device__ inline RowScale row_scale(uint32_t largest) {
  if (largest >= 0x7F800000u) return {0x7FC0, 0};  // an infinity or NaN
  const uint32_t quotient = __float_as_uint(__fdiv_rn(__uint_as_float(largest), kIsMixed<T> ? 127.0f : 448.0f));
  const uint32_t up = (quotient + 0xFFFFu) & 0xFFFF0000u;
  const float scale = __uint_as_float(up);
  return {uint16_t(up >> 16), scale > 0 ? __frcp_rn(scale) : 0.0f};
}
__device__ inline uint32_t magnitude(float v) { return __float_as_uint(v) & 0x7FFFFFFFu; }

template <class T> __device__ uint8_t code_of(float v);
template <>
__device__ inline uint8_t code_of<E4m3>(float v) { return code_of_float(v); }
template <>
__device__ inline uint8_t code_of<Int8>(float v) { return uint8_t(int8_t(__float2int_rn(fminf(fmaxf(v, -127.0f), 127.0f)))); }
template <class T>
__device__ inline uint2 eight_codes(const float v[8], float factor) {
  uint2 codes{};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    codes.x |= uint32_t(code_of<T>(v[i] * factor)) << (8 * i);
    codes.y |= uint32_t(code_of<T>(v[4 + i] * factor)) << (8 * i);
  }
  return codes;
}

// Where row `slot` of head g of a block is, in bytes from the cache's start, and its scale.
struct RowPlace {
  size_t row, scale;
};
template <class T>
__device__ inline RowPlace row_place(const BatchView& b, size_t stride, int block, int g, int heads, int slot, int dim) {
  const size_t at = size_t(block) * stride, row = size_t(g) * b.block_tokens + slot;
  return {at + row * dim * sizeof(T), at + size_t(heads) * b.block_tokens * dim * sizeof(T) + row * 2};
}
template <class T>
__device__ inline RowPlace cache_at(const BatchView& b, size_t stride, int s, int position, int g, int heads, int dim) {
  return row_place<T>(b, stride, b.block_ids[b.block_begin[s] + position / b.block_tokens], g, heads, position % b.block_tokens, dim);
}
__device__ inline float cache_scale(const void* cache, size_t place) {
  return __uint_as_float(uint32_t(__ldcg(reinterpret_cast<const uint16_t*>(static_cast<const uint8_t*>(cache) + place))) << 16);
}

// What weights of values take from their scale. A weight times the scale, relative to the largest such product, is what values are
// multiplied by: an f16 holds it, however small the scales are. The sum of weights takes the scale out again.
struct ValueScale {
  float log2, inverse;
};
__device__ inline ValueScale value_scale(float scale) {
  constexpr float kLeast = 0x1p-40f;  // smaller ones are as good as zero
  const float v = scale < kLeast ? kLeast : scale;  // a NaN stays
  return {__log2f(v), __fdividef(1.0f, v)};
}

// Of an orthogonal mixture of `block` dimensions (quant/cache_row.h): the factor behind the sums and differences.
__device__ inline float mix_factor(int block) { return __frcp_rn(__fsqrt_rn(float(block))); }
__host__ __device__ constexpr int mixed_block(int dim) { return dim & -dim; }
// The step whose two sides differ in a lane's number.
__device__ inline float mix_lanes(float v, int step) {
  const float other = __shfl_xor_sync(0xFFFFFFFFu, v, step);
  return threadIdx.x & step ? other - v : v + other;
}
// The steps within `n` neighbours that are held together, up to blocks of `block`.
template <int n>
__device__ inline void mix_held(float (&v)[n], int block) {
#pragma unroll
  for (int half = 1; half < n; half *= 2) {
    if (half >= block) return;
#pragma unroll
    for (int i = 0; i < n; ++i) {
      if (i & half) continue;
      const float a = v[i], b = v[i + half];
      v[i] = a + b, v[i + half] = a - b;
    }
  }
}

}  // namespace sluice::kernels::cuda
