// Weights of every type in file layout as float, eight neighbours at a time, bit for bit what quant/formats gives: products and sums are
// rounded one by one (__fmul_rn, __fadd_rn), never fused. Layouts: the GGUF specification. Rows start at even addresses, but those of grouped integers.
#pragma once
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/cuda/e4m3.cuh"
#include "quant/codebook.h"
#include "tensor/dtype.h"

namespace sluice::kernels::cuda {

__device__ inline float half_at(const uint8_t* p) { return __half2float(*reinterpret_cast<const __half*>(p)); }

// Eight bytes at an even address.
__device__ inline void bytes8(const uint8_t* p, uint32_t out[2]) {
  const auto* h = reinterpret_cast<const uint16_t*>(p);
  out[0] = h[0] | uint32_t(h[1]) << 16;
  out[1] = h[2] | uint32_t(h[3]) << 16;
}
__device__ inline int byte_of(const uint32_t b[2], int i) { return int(b[i >> 2] >> (8 * (i & 3)) & 255); }

template <WeightType type> constexpr bool kIsFp8 = is_fp8(type);

// Eight codes of e4m3 times a scale.
__device__ inline void fp8_eight(const uint32_t codes[2], float scale, float w[8]) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t pair = halves_of_codes(uint16_t(codes[i / 2] >> (i % 2 * 16)));
    const __half2 h = reinterpret_cast<const __half2&>(pair);
    w[2 * i] = __fmul_rn(scale, __low2float(h)), w[2 * i + 1] = __fmul_rn(scale, __high2float(h));
  }
}

template <WeightType type>
struct Decoder;

// Plain floats: rows of any length. eight() wants whole 16-byte groups; one() any element.
template <>
struct Decoder<WeightType::kF32> {
  static constexpr bool kPlain = true;
  static constexpr int kBytes = 4;
  __device__ static float one(const uint8_t* row, int k) { return reinterpret_cast<const float*>(row)[k]; }
  __device__ static void eight(const uint8_t* row, int k, float w[8]) {
    const auto* p = reinterpret_cast<const float4*>(row + size_t(k) * 4);
    const float4 a = p[0], b = p[1];
    w[0] = a.x, w[1] = a.y, w[2] = a.z, w[3] = a.w, w[4] = b.x, w[5] = b.y, w[6] = b.z, w[7] = b.w;
  }
};
template <>
struct Decoder<WeightType::kF16> {
  static constexpr bool kPlain = true;
  static constexpr int kBytes = 2;
  __device__ static float one(const uint8_t* row, int k) { return half_at(row + size_t(k) * 2); }
  __device__ static void eight(const uint8_t* row, int k, float w[8]) {
    const uint4 v = *reinterpret_cast<const uint4*>(row + size_t(k) * 2);
    const auto* h = reinterpret_cast<const __half*>(&v);
#pragma unroll
    for (int i = 0; i < 8; ++i) w[i] = __half2float(h[i]);
  }
};
template <>
struct Decoder<WeightType::kBF16> {
  static constexpr bool kPlain = true;
  static constexpr int kBytes = 2;
  __device__ static float one(const uint8_t* row, int k) {
    return __uint_as_float(uint32_t(reinterpret_cast<const uint16_t*>(row)[k]) << 16);
  }
  __device__ static void eight(const uint8_t* row, int k, float w[8]) {
    const uint4 v = *reinterpret_cast<const uint4*>(row + size_t(k) * 2);
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) w[i] = __uint_as_float(i & 1 ? words[i / 2] & 0xFFFF0000u : words[i / 2] << 16);
  }
};

// Blocks of 32 with 4 bits: eight neighbours are the low or the high halves of eight bytes.
template <int block_bytes, int quants_at, bool has_min>
struct FourBits {
  static constexpr bool kPlain = false;
  __device__ static void eight(const uint8_t* row, int k, float w[8]) {
    const uint8_t* b = row + size_t(k / 32) * block_bytes;
    uint32_t q[2];
    bytes8(b + quants_at + k % 16, q);
    const int shift = k % 32 / 16 * 4;
    const float d = half_at(b), m = has_min ? half_at(b + 2) : 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int v = byte_of(q, i) >> shift & 15;
      w[i] = has_min ? __fadd_rn(__fmul_rn(d, float(v)), m) : __fmul_rn(d, float(v - 8));
    }
  }
};
template <> struct Decoder<WeightType::kQ4_0> : FourBits<18, 2, false> {};
template <> struct Decoder<WeightType::kQ4_1> : FourBits<20, 4, true> {};

// The same and a fifth bit of each of the 32 in one word.
template <int block_bytes, int high_at, bool has_min>
struct FiveBits {
  static constexpr bool kPlain = false;
  __device__ static void eight(const uint8_t* row, int k, float w[8]) {
    const uint8_t* b = row + size_t(k / 32) * block_bytes;
    uint32_t q[2];
    bytes8(b + high_at + 4 + k % 16, q);
    const int high = b[high_at + k % 32 / 8], shift = k % 32 / 16 * 4;
    const float d = half_at(b), m = has_min ? half_at(b + 2) : 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int v = (byte_of(q, i) >> shift & 15) | (high >> i & 1) << 4;
      w[i] = has_min ? __fadd_rn(__fmul_rn(d, float(v)), m) : __fmul_rn(d, float(v - 16));
    }
  }
};
template <> struct Decoder<WeightType::kQ5_0> : FiveBits<22, 2, false> {};
template <> struct Decoder<WeightType::kQ5_1> : FiveBits<24, 4, true> {};

template <>
struct Decoder<WeightType::kQ8_0> {
  static constexpr bool kPlain = false;
  __device__ static void eight(const uint8_t* row, int k, float w[8]) {
    const uint8_t* b = row + size_t(k / 32) * 34;
    uint32_t q[2];
    bytes8(b + 2 + k % 32, q);
    const float d = half_at(b);
#pragma unroll
    for (int i = 0; i < 8; ++i) w[i] = __fmul_rn(d, float(int8_t(byte_of(q, i))));
  }
};

// Blocks of 256 in groups of 32, whose scale and minimum have 6 bits each in 12 bytes.
template <int block_bytes, int quants_at, bool fifth>
struct Grouped {
  static constexpr bool kPlain = false;
  __device__ static void eight(const uint8_t* row, int k, float w[8]) {
    const uint8_t* b = row + size_t(k / 256) * block_bytes;
    const uint8_t* s = b + 4;
    const int g = k % 256 / 32;
    int scale, min;
    if (g < 4) {
      scale = s[g] & 63;
      min = s[g + 4] & 63;
    } else {
      scale = (s[g + 4] & 15) | (s[g - 4] >> 6) << 4;
      min = s[g + 4] >> 4 | (s[g] >> 6) << 4;
    }
    const float d = __fmul_rn(half_at(b), float(scale)), m = __fmul_rn(half_at(b + 2), float(min));
    uint32_t q[2], high[2] = {0, 0};
    bytes8(b + quants_at + 32 * (g / 2) + k % 32, q);
    if (fifth) bytes8(b + 16 + k % 32, high);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      int v = byte_of(q, i) >> (g % 2 * 4) & 15;
      if (fifth) v |= (byte_of(high, i) >> g & 1) << 4;
      w[i] = __fsub_rn(__fmul_rn(d, float(v)), m);
    }
  }
};
template <> struct Decoder<WeightType::kQ4_K> : Grouped<144, 16, false> {};
template <> struct Decoder<WeightType::kQ5_K> : Grouped<176, 48, true> {};

// Blocks of 256 with 4 + 2 bits and an int8 scale of each 16.
template <>
struct Decoder<WeightType::kQ6_K> {
  static constexpr bool kPlain = false;
  __device__ static void eight(const uint8_t* row, int k, float w[8]) {
    const uint8_t* b = row + size_t(k / 256) * 210;
    const int half = k % 256 / 128, part = k % 128 / 32, l = k % 32;
    uint32_t low[2], high[2];
    bytes8(b + 64 * half + 32 * (part % 2) + l, low);
    bytes8(b + 128 + 32 * half + l, high);
    const float d = __fmul_rn(half_at(b + 208), float(int8_t(b[192 + k % 256 / 16])));
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int v = (byte_of(low, i) >> (part / 2 * 4) & 15) | (byte_of(high, i) >> (2 * part) & 3) << 4;
      w[i] = __fmul_rn(d, float(v - 32));
    }
  }
};

// Blocks of 256 with two bits, and 4 bits each of scale and minimum for 16.
template <>
struct Decoder<WeightType::kQ2_K> {
  static constexpr bool kPlain = false;
  __device__ static void eight(const uint8_t* row, int k, float w[8]) {
    const uint8_t* b = row + size_t(k / 256) * 84;
    uint32_t q[2];
    bytes8(b + 16 + k % 256 / 128 * 32 + k % 32, q);
    const int s = b[k % 256 / 16], shift = k % 128 / 32 * 2;
    const float d = __fmul_rn(half_at(b + 80), float(s & 15)), m = __fmul_rn(half_at(b + 82), float(s >> 4));
#pragma unroll
    for (int i = 0; i < 8; ++i) w[i] = __fsub_rn(__fmul_rn(d, float(byte_of(q, i) >> shift & 3)), m);
  }
};

// Blocks of 256 with 2 + 1 bits, and a scale of 6 bits less 32 for 16.
template <>
struct Decoder<WeightType::kQ3_K> {
  static constexpr bool kPlain = false;
  __device__ static void eight(const uint8_t* row, int k, float w[8]) {
    const uint8_t *b = row + size_t(k / 256) * 110, *s = b + 96;
    uint32_t low[2], high[2];
    bytes8(b + 32 + k % 256 / 128 * 32 + k % 32, low);
    bytes8(b + k % 32, high);
    const int g = k % 256 / 16, scale = ((s[g % 8] >> g / 8 * 4 & 15) | (s[8 + g % 4] >> g / 4 * 2 & 3) << 4) - 32;
    const float d = __fmul_rn(half_at(b + 108), float(scale));
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int v = (byte_of(low, i) >> (k % 128 / 32 * 2) & 3) | (byte_of(high, i) >> (k % 256 / 32) & 1) << 2;
      w[i] = __fmul_rn(d, float(v - 4));
    }
  }
};

// Blocks of 32 whose 4 bits stand for a value of the codebook.
__device__ inline void codebook_eight(const uint8_t* nibbles, int k, float d, float w[8]) {
  constexpr auto four = [](int from) {
    uint32_t v = 0;
    for (int i = 0; i < 4; ++i) v |= uint32_t(uint8_t(quant::kNonLinear4[from + i])) << 8 * i;
    return v;
  };
  constexpr uint32_t k0 = four(0), k4 = four(4), k8 = four(8), k12 = four(12);
  uint32_t q[2];
  bytes8(nibbles + k % 16, q);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const uint32_t v = uint32_t(byte_of(q, i)) >> (k % 32 / 16 * 4) & 15, word = v < 4 ? k0 : v < 8 ? k4 : v < 12 ? k8 : k12;
    w[i] = __fmul_rn(d, float(int8_t(word >> 8 * (v % 4))));
  }
}
template <>
struct Decoder<WeightType::kIQ4_NL> {
  static constexpr bool kPlain = false;
  __device__ static void eight(const uint8_t* row, int k, float w[8]) {
    const uint8_t* b = row + size_t(k / 32) * 18;
    codebook_eight(b + 2, k, half_at(b), w);
  }
};
// Eight such in one block, with a scale of 6 bits less 32 each.
template <>
struct Decoder<WeightType::kIQ4_XS> {
  static constexpr bool kPlain = false;
  __device__ static void eight(const uint8_t* row, int k, float w[8]) {
    const uint8_t* b = row + size_t(k / 256) * 136;
    const int g = k % 256 / 32, scale = ((b[4 + g / 2] >> g % 2 * 4 & 15) | (b[2 + g / 4] >> g % 4 * 2 & 3) << 4) - 32;
    codebook_eight(b + 8 + 16 * g, k, __fmul_rn(half_at(b), float(scale)), w);
  }
};

// Grouped integers (quant/side_blocks.h).
template <int bits, int unit>
struct Integers {
  static constexpr bool kPlain = false;
  __device__ static void eight(const uint8_t* row, int k, float w[8]) {
    const uint8_t *b = row + size_t(k / unit) * (3 + unit * bits / 8), *codes = b + 3 + k % unit * bits / 8;
    const float scale = __half2float(__ushort_as_half(static_cast<unsigned short>(b[0] | b[1] << 8)));
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int code = bits == 8 ? codes[i] : codes[i / 2] >> i % 2 * 4 & 15;
      w[i] = __fmul_rn(scale, float(code - int(b[2])));
    }
  }
};
template <> struct Decoder<WeightType::kInt4_32> : Integers<4, 32> {};
template <> struct Decoder<WeightType::kInt4_64> : Integers<4, 64> {};
template <> struct Decoder<WeightType::kInt4_128> : Integers<4, 128> {};
template <> struct Decoder<WeightType::kInt8_32> : Integers<8, 32> {};
template <> struct Decoder<WeightType::kInt8_64> : Integers<8, 64> {};
template <> struct Decoder<WeightType::kInt8_128> : Integers<8, 128> {};

// FP8 as files have it (quant/side_blocks.h): a float32 scale before the codes that share it.
template <int unit>
struct Fp8Block {
  static constexpr bool kPlain = false;
  __device__ static void eight(const uint8_t* row, int k, float w[8]) {
    const uint8_t* b = row + size_t(k / unit) * (unit + 4);
    fp8_eight(reinterpret_cast<const uint32_t*>(b + 4 + k % unit), *reinterpret_cast<const float*>(b), w);
  }
};
template <> struct Decoder<WeightType::kFp8_32> : Fp8Block<32> {};
template <> struct Decoder<WeightType::kFp8_64> : Fp8Block<64> {};
template <> struct Decoder<WeightType::kFp8_128> : Fp8Block<128> {};

// Elements [k, k + 8) of a row of `cols`, zeros past its end. whole: rows are whole 16-byte groups.
template <WeightType type>
__device__ inline void decode8(const uint8_t* row, int k, int cols, bool whole, float w[8]) {
  using D = Decoder<type>;
  if constexpr (D::kPlain) {
    if (!whole) {
#pragma unroll
      for (int i = 0; i < 8; ++i) w[i] = k + i < cols ? D::one(row, k + i) : 0.0f;
      return;
    }
  }
  D::eight(row, k, w);
}

// fn.template operator()<type>() for a type known at run time.
template <class Fn>
void with_type(WeightType type, Fn fn) {
  switch (type) {
    case WeightType::kF32: return fn.template operator()<WeightType::kF32>();
    case WeightType::kF16: return fn.template operator()<WeightType::kF16>();
    case WeightType::kBF16: return fn.template operator()<WeightType::kBF16>();
    case WeightType::kQ4_0: return fn.template operator()<WeightType::kQ4_0>();
    case WeightType::kQ4_1: return fn.template operator()<WeightType::kQ4_1>();
    case WeightType::kQ5_0: return fn.template operator()<WeightType::kQ5_0>();
    case WeightType::kQ5_1: return fn.template operator()<WeightType::kQ5_1>();
    case WeightType::kQ8_0: return fn.template operator()<WeightType::kQ8_0>();
    case WeightType::kQ2_K: return fn.template operator()<WeightType::kQ2_K>();
    case WeightType::kQ3_K: return fn.template operator()<WeightType::kQ3_K>();
    case WeightType::kQ4_K: return fn.template operator()<WeightType::kQ4_K>();
    case WeightType::kQ5_K: return fn.template operator()<WeightType::kQ5_K>();
    case WeightType::kQ6_K: return fn.template operator()<WeightType::kQ6_K>();
    case WeightType::kIQ4_NL: return fn.template operator()<WeightType::kIQ4_NL>();
    case WeightType::kIQ4_XS: return fn.template operator()<WeightType::kIQ4_XS>();
    case WeightType::kInt4_32: return fn.template operator()<WeightType::kInt4_32>();
    case WeightType::kInt4_64: return fn.template operator()<WeightType::kInt4_64>();
    case WeightType::kInt4_128: return fn.template operator()<WeightType::kInt4_128>();
    case WeightType::kInt8_32: return fn.template operator()<WeightType::kInt8_32>();
    case WeightType::kInt8_64: return fn.template operator()<WeightType::kInt8_64>();
    case WeightType::kInt8_128: return fn.template operator()<WeightType::kInt8_128>();
    case WeightType::kFp8_32: return fn.template operator()<WeightType::kFp8_32>();
    case WeightType::kFp8_64: return fn.template operator()<WeightType::kFp8_64>();
    case WeightType::kFp8_128: return fn.template operator()<WeightType::kFp8_128>();
  }
}

}  // namespace sluice::kernels::cuda
