// Weights out of tiles (tiled.h): as left factors of the tensor cores with their scales, and as floats.
#pragma once
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/cuda/pipeline.cuh"
#include "kernels/cuda/tiled.h"

namespace sluice::kernels::cuda {

__device__ inline float half_bits(uint32_t v) { return __half2float(__ushort_as_half(static_cast<unsigned short>(v))); }
__device__ inline uint32_t half2_sub(uint32_t a, uint32_t b) {
  const __half2 v = __hsub2(*reinterpret_cast<const __half2*>(&a), *reinterpret_cast<const __half2*>(&b));
  return *reinterpret_cast<const uint32_t*>(&v);
}
__device__ inline uint32_t half2_mul(uint32_t a, uint32_t b) {
  const __half2 v = __hmul2(*reinterpret_cast<const __half2*>(&a), *reinterpret_cast<const __half2*>(&b));
  return *reinterpret_cast<const uint32_t*>(&v);
}
__device__ inline uint32_t half2_fma(uint32_t a, uint32_t b, uint32_t c) {
  const __half2 v = __hfma2(*reinterpret_cast<const __half2*>(&a), *reinterpret_cast<const __half2*>(&b), *reinterpret_cast<const __half2*>(&c));
  return *reinterpret_cast<const uint32_t*>(&v);
}

// a0..a3 of one product of depth 16 as whole numbers in f16: 0x6400 | q is 1024 + q, and 0x6400 | q << 4 is 1024 + 16 q.
template <int zero>
__device__ inline void four_bits(uint32_t w, uint32_t a[4]) {
  constexpr uint32_t kMagic = 0x64006400u;
  constexpr uint32_t kLow = 0x64006400u + uint32_t(zero) * 0x00010001u;                    // 1024 + zero
  constexpr uint32_t kSixteenth = 0x2C002C00u;
  constexpr uint32_t kHigh = zero == 0 ? 0xD400D400u : 0xD480D480u;                        // -(64 + zero), zero: 0 or 8
  static_assert(zero == 0 || zero == 8);
  const uint32_t v = w >> 8;
  a[0] = half2_sub((w & 0x000F000Fu) | kMagic, kLow);
  a[1] = half2_fma((w & 0x00F000F0u) | kMagic, kSixteenth, kHigh);
  a[2] = half2_sub((v & 0x000F000Fu) | kMagic, kLow);
  a[3] = half2_fma((v & 0x00F000F0u) | kMagic, kSixteenth, kHigh);
}
// high: the block's word of upper bits, for half m.
__device__ inline void six_bits(uint32_t w, uint32_t high, int m, uint32_t a[4]) {
  constexpr uint32_t kMagic = 0x64006400u, kZero = 0x64206420u;  // 1024 + 32
  const uint32_t h = high >> 8 * m;
#pragma unroll
  for (int p = 0; p < 4; ++p) {
    const uint32_t upper = (p < 2 ? h << (4 - 2 * p) : h >> (2 * p - 4)) & 0x00300030u;
    a[p] = half2_sub((w >> 4 * p & 0x000F000Fu) | upper | kMagic, kZero);
  }
}
// Two words: a0 and a1, a2 and a3, as bytes with 128 added.
__device__ inline void eight_bits(uint32_t w0, uint32_t w1, uint32_t a[4]) {
  constexpr uint32_t kMagic = 0x64646464u, kZero = 0x64806480u;  // 1024 + 128
  a[0] = half2_sub(__byte_perm(w0, kMagic, 0x4140), kZero);
  a[1] = half2_sub(__byte_perm(w0, kMagic, 0x4342), kZero);
  a[2] = half2_sub(__byte_perm(w1, kMagic, 0x4140), kZero);
  a[3] = half2_sub(__byte_perm(w1, kMagic, 0x4342), kZero);
}

// Where columns k and k + 1 of a row of inputs lie in the order of fragments, k a multiple of 8; the next three pairs are 8 further on each.
__device__ inline int fragment_place(int k) { return k / 32 * 32 + k % 32 / 16 * 4 + k % 16 / 4; }

// Byte i of a word as a float, without the slow conversion: 0x4B0000xx is 2^23 + xx.
__device__ inline float byte_float(uint32_t v, int i) { return __uint_as_float(__byte_perm(v, 0x4B000000u, 0x7440u | uint32_t(i))) - 8388608.0f; }

// What is wanted of both rows for one block of 32 columns: weight = scale * quant - min; of Q6_K a scale for each 16 columns.
struct BlockScales {
  float scale[2][2], min[2];  // [half m][row]; min[row]
};

template <WeightType type>
constexpr bool kHasMin = type == WeightType::kQ4_1 || type == WeightType::kQ4_K;

// The left factor of one product. piece(p, i): word i of this lane's piece p, from wherever it is.
template <WeightType type, class Piece>
__device__ inline void left_of(Piece piece, int b, int m, uint32_t a[4]) {
  if constexpr (type == WeightType::kQ8_0) eight_bits(piece(b, 2 * m), piece(b, 2 * m + 1), a);
  else if constexpr (type == WeightType::kQ6_K) six_bits(piece(b / 2, b % 2 * 2 + m), piece(2, b), m, a);
  else four_bits<type == WeightType::kQ4_0 ? 8 : 0>(piece(b / 2, b % 2 * 2 + m), a);
}

// scale(i): word i of the scales of this lane's rows.
template <WeightType type, class Scale>
__device__ inline BlockScales scales_of(Scale scale, int b) {
  BlockScales s{};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if constexpr (type == WeightType::kQ4_K) {
      const int at = 2 * b + r;
      const uint32_t d = scale(4 + r);
      s.scale[0][r] = s.scale[1][r] = __fmul_rn(half_bits(d & 0xFFFF), byte_float(scale(at / 4), at % 4));
      s.min[r] = __fmul_rn(half_bits(d >> 16), byte_float(scale(2 + at / 4), at % 4));
    } else if constexpr (type == WeightType::kQ6_K) {
      const float d = half_bits(scale(4) >> 16 * r & 0xFFFF);
#pragma unroll
      for (int m = 0; m < 2; ++m) {
        const int at = (2 * b + m) * 2 + r;
        s.scale[m][r] = __fmul_rn(d, byte_float(scale(at / 4) ^ 0x80808080u, at % 4) - 128.0f);
      }
    } else {
      s.scale[0][r] = s.scale[1][r] = half_bits(scale(b) >> 16 * r & 0xFFFF);
      if constexpr (type == WeightType::kQ4_1) s.min[r] = -half_bits(scale(4 + b) >> 16 * r & 0xFFFF);
    }
  }
  return s;
}

// Where word i of the scales of rows g and g + 8 is, in bytes from the first.
template <WeightType type>
__device__ inline int scale_at(int g, int i) { return i < 4 ? g * 16 + 4 * i : 128 + g * (unit_scales(type) - 16) + 4 * (i - 4); }

__device__ inline uint32_t word_of(const uint8_t* p) { return *reinterpret_cast<const uint32_t*>(p); }

// Elements [k, k + 8), k a multiple of 8, of a row, bit for bit what quant/formats gives. tiles: the matrix.
template <WeightType type>
__device__ inline void tiled8(const uint8_t* tiles, int cols, int row, int k, float w[8]) {
  const uint8_t* unit = tiles + row / kUnitRows * tile_bytes(type, cols) + size_t(k / kUnitCols) * unit_bytes(type);
  const uint8_t* scales = unit + unit_pieces(type) * 512;
  const int b = k % kUnitCols / 32, m = k % 32 / 16, g = row % 8, r = row % 16 / 8;
  const BlockScales s = scales_of<type>([&](int i) { return word_of(scales + scale_at<type>(g, i)); }, b);
  const float scale = m ? (r ? s.scale[1][1] : s.scale[1][0]) : (r ? s.scale[0][1] : s.scale[0][0]), min = r ? s.min[1] : s.min[0];
#pragma unroll
  for (int part = 0; part < 4; ++part) {  // four lanes have two of the eight each
    const uint8_t* lane = unit + (4 * g + part) * 16;
    uint32_t a[4];
    left_of<type>([&](int p, int i) { return word_of(lane + p * 512 + i * 4); }, b, m, a);
    const uint32_t upper = k % 16 ? a[2] : a[0], lower = k % 16 ? a[3] : a[1], pair = r ? lower : upper;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const float scaled = __fmul_rn(scale, half_bits(pair >> 16 * j & 0xFFFF));
      w[2 * part + j] = kHasMin<type> ? __fsub_rn(scaled, min) : scaled;
    }
  }
}

// A lane's part of a unit in the ring: pieces and scales, 16 bytes a lane at steps of 512; what is left of the scales last.
template <WeightType type>
struct Slot {
  static constexpr int kPieces = unit_pieces(type), kWhole = unit_scales(type) / 16, kRest = unit_scales(type) % 16;
  static constexpr int kBytes = (kPieces + kWhole) * 512 + kRest * 32;
  __device__ static void copy16(uint32_t to, const uint8_t* from) {
    copy_once(to, from, policy_once());
  }
  // slot: where the warp's begins.
  __device__ static void copy(uint32_t slot, const uint8_t* unit) {
    const int lane = threadIdx.x % 32, g = lane / 4;
#pragma unroll
    for (int p = 0; p < kPieces; ++p) copy16(slot + p * 512 + lane * 16, unit + p * 512 + lane * 16);
#pragma unroll
    for (int i = 0; i < kWhole; ++i) copy16(slot + (kPieces + i) * 512 + lane * 16, unit + kPieces * 512 + i * 128 + g * 16);
    if constexpr (kRest != 0)
      asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(slot + (kPieces + kWhole) * 512 + lane * kRest),
                   "l"(unit + kPieces * 512 + kWhole * 128 + g * kRest), "n"(kRest == 0 ? 4 : kRest) : "memory");
  }
};

template <WeightType type>
struct Unit {
  using S = Slot<type>;
  uint32_t pieces[S::kPieces][4], scales[S::kWhole * 4 + 2];
  __device__ void read(const uint8_t* slot) {
    const int lane = threadIdx.x % 32;
    const auto read16 = [&](int i, uint32_t* to) {
      const uint4 v = *reinterpret_cast<const uint4*>(slot + i * 512 + lane * 16);
      to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
    };
#pragma unroll
    for (int p = 0; p < S::kPieces; ++p) read16(p, pieces[p]);
#pragma unroll
    for (int i = 0; i < S::kWhole; ++i) read16(S::kPieces + i, scales + 4 * i);
#pragma unroll
    for (int i = 0; i < S::kRest / 4; ++i)
      scales[S::kWhole * 4 + i] = word_of(slot + (S::kPieces + S::kWhole) * 512 + lane * S::kRest + 4 * i);
  }
};

// fn.template operator()<type>() for a tiled type known at run time.
template <class Fn>
void with_tiled(WeightType type, Fn fn) {
  switch (type) {
    case WeightType::kQ4_0: return fn.template operator()<WeightType::kQ4_0>();
    case WeightType::kQ4_1: return fn.template operator()<WeightType::kQ4_1>();
    case WeightType::kQ8_0: return fn.template operator()<WeightType::kQ8_0>();
    case WeightType::kQ4_K: return fn.template operator()<WeightType::kQ4_K>();
    case WeightType::kQ6_K: return fn.template operator()<WeightType::kQ6_K>();
    default: return;
  }
}

}  // namespace sluice::kernels::cuda
