// How quantised weights lie in device memory: tiles of 16 rows, one after the other; a tile is a row of units of 128 columns,
// all that a warp needs for 16 x 128 in one stretch:
//   codes   of b bits: 2 b words a lane, of which 16 bytes of every lane at a time and, where b is odd, 8 at last. Lane l has rows g = l / 4 and g + 8
//           and of each 16 columns four, which the tensor cores' left factor wants of it: 2 (l % 4), its neighbour, and those that are 8 further on.
//   scales  of both rows, for each g: 16 bytes of every g, as often as there are as many, then 8, then 4.
// Columns are padded to whole units and rows to whole tiles with scales of zero. The idea of storing weights in fragment order is
// Marlin's (Frantar and others, arXiv 2408.11743).
//
// This file: what the types of tiled/ are made of, planes of codes and kinds of scales, each with how it is packed and how it is read. `half` counts
// 16 columns, 0..7 of a unit. Of a half a lane has four pairs of neighbours, p = 0 of row g, 1 of g + 8, 2 and 3 of both again 8
// columns further on: the words a[p] of a product's left factor. A type is a struct T:
//   kType, kBits, kScaleBytes   of a code; of both rows' scales
//   kGroup, kHasMin             columns that share a scale, 16 to 128; weight = scale * code - min, else weight = scale * code
//   kFileHalves                 scales are f16: those of both rows are word scale_word(half); and min's, of the other sign, word min_word(half)
//   four(row, unit, half, t)    host: codes of columns 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 of a half, a byte each, out of a row in file layout
//   put(words, half, u, l)      host: such codes of rows g and g + 8 into a lane's words, which were zero
//   put_scales(row, unit, blocks, r, to)   host: those of row r (0: g, 1: g + 8) into both rows' bytes; blocks: of 32 columns, that there are
//   left(lane, half, a)         the codes as whole numbers in f16
//   scale(lane, half, r), min(lane, half, r)
// lane.code(i) and lane.scale(i) are words of a lane's codes and of its rows' scales. Weights so read in float32 are what quant/formats gives, to the bit but for the
// sign of zeros (tiled_read.h).
#pragma once
#include <cstring>

#include "kernels/cuda/half_words.h"
#include "tensor/dtype.h"

namespace sluice::kernels::cuda {

constexpr int kUnitCols = 128, kUnitRows = 16, kUnitHalves = kUnitCols / 16;
SLUICE_ANYWHERE constexpr int units_of(int cols) { return (cols + kUnitCols - 1) / kUnitCols; }
template <class T> constexpr int kCodeWords = 2 * T::kBits;
template <class T> constexpr int kCodeBytes = 128 * kCodeWords<T>;
template <class T> constexpr int kUnitBytes = kCodeBytes<T> + 8 * T::kScaleBytes;
template <class T> SLUICE_ANYWHERE constexpr size_t tile_bytes(int cols) { return size_t(units_of(cols)) * size_t(kUnitBytes<T>); }

// Where word i of a lane's codes is in a unit, in bytes.
template <class T>
SLUICE_ANYWHERE constexpr int code_place(int lane, int i) { return i / 4 * 512 + lane * (i / 4 < T::kBits / 2 ? 16 : 8) + i % 4 * 4; }
// Where byte i of the scales of `who` is among those of `holders`, who each have as many.
template <class T>
SLUICE_ANYWHERE constexpr int scale_place(int who, int holders, int i) {
  constexpr int kWhole = T::kScaleBytes / 16 * 16, kEight = T::kScaleBytes % 16 / 8 * 8;
  if (i < kWhole) return i / 16 * 16 * holders + who * 16 + i % 16;
  if (i < kWhole + kEight) return kWhole * holders + who * 8 + i - kWhole;
  return (kWhole + kEight) * holders + who * 4 + i - kWhole - kEight;
}

// Packing works on words of four bytes, since a model has billions of weights. Two neighbouring bytes, and the two that are 8 further on:
inline uint32_t pairs_at(const uint8_t* p) {
  uint16_t low, high;
  std::memcpy(&low, p, 2);
  std::memcpy(&high, p + 8, 2);
  return low | uint32_t(high) << 16;
}
// Bytes 0..3 to bits 0, 16, 8, 24: a pair of weights is the same bits of both halves of a word.
inline uint32_t spread(uint32_t v) { return (v & 0xFF0000FFu) | (v & 0xFF00u) << 8 | (v >> 8 & 0xFF00u); }
// The same to bits 0, 16, 4, 20.
inline uint32_t spread_near(uint32_t v) { return (v & 0xFFu) | (v & 0xFF00u) << 8 | (v >> 12 & 0xFF0u) | v >> 24 << 20; }
inline void put16(uint8_t* to, const uint8_t* from) { std::memcpy(to, from, 2); }

// 0x6400 | q << n is 1024 + q * 2^n in f16.
constexpr uint32_t kTwice = 0x00010001u, kMagic = 0x6400u * kTwice;
// What leaves q - zero of 1024 + q when it is taken off, and of 64 + q when it is added; zero up to 64.
SLUICE_ANYWHERE constexpr uint32_t off_low(int zero) { return kMagic + uint32_t(zero) * kTwice; }
SLUICE_ANYWHERE constexpr uint32_t to_high(int zero) { return (0xD400u + uint32_t(16 * zero)) * kTwice; }

// Words of eight codes of 4 bits, pair p from bit 4 p of either half.
inline uint32_t put_four_bits(uint32_t u, uint32_t l) { return spread(u & 0x0F0F0F0Fu) | spread(l & 0x0F0F0F0Fu) << 4; }
// low: off_low of row g's zero; high: to_high of the other row's.
SLUICE_DEVICE inline void four_bits(uint32_t w, uint32_t low, uint32_t high, uint32_t a[4]) {
  constexpr uint32_t kSixteenth = 0x2C00u * kTwice;
  const uint32_t v = w >> 8;
  a[0] = half2_sub(and_or(w, 0x000F000Fu, kMagic), low);
  a[1] = half2_fma(and_or(w, 0x00F000F0u, kMagic), kSixteenth, high);
  a[2] = half2_sub(and_or(v, 0x000F000Fu, kMagic), low);
  a[3] = half2_fma(and_or(v, 0x00F000F0u, kMagic), kSixteenth, high);
}

// A bit more of each: of pair p bit 8 (half / 2 % 2) + half % 2 + 2 p of either half of word half / 4.
inline void put_one_bit(uint32_t* words, int half, uint32_t u, uint32_t l) {
  words[half / 4] |= (spread_near(u & 0x01010101u) | spread_near(l & 0x01010101u) << 2) << (8 * (half / 2 % 2) + half % 2);
}
// Such a word with pair p's at bit 2 p + at.
SLUICE_DEVICE inline uint32_t one_bit(uint32_t w, int half, int at) {
  const int by = 8 * (half / 2 % 2) + half % 2 - at;
  return by >= 0 ? w >> by : w << -by;
}
// Four bits and one more.
template <int zero>
SLUICE_DEVICE inline void five_bits(uint32_t w, uint32_t fifth, int half, uint32_t a[4]) {
  constexpr uint32_t kSixteenth = 0x2C00u * kTwice, kLow = off_low(zero), kHigh = to_high(zero);
  const uint32_t v = w >> 8, f = one_bit(fifth, half, 0);
  a[0] = half2_sub(and_or(w, 0x000F000Fu, and_or(f << 4, 0x00100010u, kMagic)), kLow);
  a[1] = half2_fma(and_or(w, 0x00F000F0u, and_or(f << 6, 0x01000100u, kMagic)), kSixteenth, kHigh);
  a[2] = half2_sub(and_or(v, 0x000F000Fu, and_or(f, 0x00100010u, kMagic)), kLow);
  a[3] = half2_fma(and_or(v, 0x00F000F0u, and_or(f << 2, 0x01000100u, kMagic)), kSixteenth, kHigh);
}

// Two bits, pair p from bit 8 (half % 2) + 2 p of either half of word half / 2.
inline void put_two_bits(uint32_t* words, int half, uint32_t u, uint32_t l) {
  words[half / 2] |= (spread_near(u & 0x03030303u) | spread_near(l & 0x03030303u) << 2) << 8 * (half % 2);
}
// third: the bit above them of pair p at bit 2 p + 2 of either half, or none.
template <int zero>
SLUICE_DEVICE inline void two_bits(uint32_t w, uint32_t third, int half, uint32_t a[4]) {
  const uint32_t v = w >> 8 * (half % 2);
  SLUICE_UNROLL
  for (int p = 0; p < 4; ++p) {
    const uint32_t fraction = (0x3C00u - 0x800u * uint32_t(p)) * kTwice, off = (0xE400u - 0x800u * uint32_t(p) + (uint32_t(zero) << 2 * p)) * kTwice;
    a[p] = half2_fma(and_or(v, 0x00030003u << 2 * p, and_or(third, 0x00040004u << 2 * p, kMagic)), fraction, off);  // q * 4^p, of which 4^-p
  }
}
// Four bits and two more.
SLUICE_DEVICE inline void six_bits(uint32_t w, uint32_t high, int half, uint32_t a[4]) {
  constexpr uint32_t kZero = off_low(32);
  const uint32_t h = high >> 8 * (half % 2);
  SLUICE_UNROLL
  for (int p = 0; p < 4; ++p) {
    a[p] = half2_sub(and_or(w >> 4 * p, 0x000F000Fu, and_or(p < 2 ? h << (4 - 2 * p) : h >> (2 * p - 4), 0x00300030u, kMagic)), kZero);
  }
}

// Bytes: two words a half, each of two pairs.
inline void put_eight_bits(uint32_t* words, int half, uint32_t u, uint32_t l) {
  words[2 * half] = (u & 0xFFFFu) | l << 16;
  words[2 * half + 1] = u >> 16 | (l & 0xFFFF0000u);
}
// upper, lower: off_low of both rows' zeros.
SLUICE_DEVICE inline void eight_bits(uint32_t w0, uint32_t w1, uint32_t upper, uint32_t lower, uint32_t a[4]) {
  constexpr uint32_t kBytes = 0x64646464u;
  a[0] = half2_sub(bytes_of(w0, kBytes, 0x4140), upper);
  a[1] = half2_sub(bytes_of(w0, kBytes, 0x4342), lower);
  a[2] = half2_sub(bytes_of(w1, kBytes, 0x4140), upper);
  a[3] = half2_sub(bytes_of(w1, kBytes, 0x4342), lower);
}

// Scales that are f16 in the file, of blocks of 32 columns which begin with one, and then maybe what is added.
template <int block_bytes, bool has_min>
struct HalfScales {
  static constexpr int kGroup = 32, kScaleBytes = has_min ? 32 : 16;  // four blocks: d of both rows; then m
  static constexpr bool kHasMin = has_min, kFileHalves = true;
  static const uint8_t* block(const uint8_t* row, int unit, int half) { return row + size_t(4 * unit + half / 2) * block_bytes; }
  static void put_scales(const uint8_t* row, int unit, int blocks, int r, uint8_t* to) {
    for (int b = 0; b < blocks; ++b) {
      put16(to + 4 * b + 2 * r, block(row, unit, 2 * b));
      if (has_min) put16(to + 16 + 4 * b + 2 * r, block(row, unit, 2 * b) + 2);
    }
  }
  SLUICE_ANYWHERE static constexpr int scale_word(int half) { return half / 2; }
  SLUICE_ANYWHERE static constexpr int min_word(int half) { return 4 + half / 2; }
  template <class Lane> SLUICE_DEVICE static float scale(const Lane& lane, int half, int r) { return half_bits(lane.scale(half / 2) >> 16 * r); }
  template <class Lane> SLUICE_DEVICE static float min(const Lane& lane, int half, int r) { return -half_bits(lane.scale(4 + half / 2) >> 16 * r); }
};

// Scales of blocks of 256 columns that begin with d and dmin, and then have 6 bits for each 32 columns' scale and minimum: of 8 bits here.
template <int block_bytes>
struct SixBitScales {
  static constexpr int kGroup = 32, kScaleBytes = 24;  // four of 32: scale of both rows, then minimum; then d and dmin of each row
  static constexpr bool kHasMin = true, kFileHalves = false;
  static const uint8_t* block(const uint8_t* row, int unit) { return row + size_t(unit / 2) * block_bytes; }
  static void put_scales(const uint8_t* row, int unit, int, int r, uint8_t* to) {
    const uint8_t *from = block(row, unit), *s = from + 4;
    for (int b = 0; b < 4; ++b) {
      const int i = 4 * (unit % 2) + b;
      to[2 * b + r] = uint8_t(i < 4 ? s[i] & 63 : (s[i + 4] & 15) | (s[i - 4] >> 6) << 4);
      to[8 + 2 * b + r] = uint8_t(i < 4 ? s[i + 4] & 63 : s[i + 4] >> 4 | (s[i] >> 6) << 4);
    }
    std::memcpy(to + 16 + 4 * r, from, 4);
  }
  template <class Lane>
  SLUICE_DEVICE static float scale(const Lane& lane, int half, int r) {
    const int at = half / 2 * 2 + r;
    return times_byte(half_bits(lane.scale(4 + r)), lane.scale(at / 4), at % 4);
  }
  template <class Lane>
  SLUICE_DEVICE static float min(const Lane& lane, int half, int r) {
    const int at = half / 2 * 2 + r;
    return times_byte(half_bits(lane.scale(4 + r) >> 16), lane.scale(2 + at / 4), at % 4);
  }
};

// Signed bytes for each `group` columns, times an f16 of their block: bytes of both rows side by side, then the f16 of both.
template <int group>
struct SignedScales {
  static constexpr int kGroup = group, kBytes = 2 * kUnitCols / group, kScaleBytes = kBytes + 4;
  static constexpr bool kHasMin = false, kFileHalves = false;
  template <class Lane>
  SLUICE_DEVICE static float scale(const Lane& lane, int half, int r) {
    const int at = half * 16 / group * 2 + r;
    return times_signed_byte(half_bits(lane.scale(kBytes / 4) >> 16 * r), lane.scale(at / 4), at % 4);
  }
};

}  // namespace sluice::kernels::cuda
