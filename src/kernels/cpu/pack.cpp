#include "kernels/cpu/pack.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/layout.h"
#include "quant/weight_format.h"

namespace sluice::kernels::cpu {
namespace {

// One block of 32 weights of one row, out of the file.
struct Block {
  uint8_t q[kBlock];    // unsigned quants, as the tile stores them
  uint8_t scale[4];     // this row's bytes of the scale plane: `scale_width` bytes each of up to two values
  uint8_t super[4];     // d and dmin (K-quants); scale and zero (grouped integers)
};

void unpack_nibbles(const uint8_t* p, uint8_t* q) {
  for (int i = 0; i < 32; ++i) q[i] = (p[i % 16] >> (i / 16 * 4)) & 15;
}

void add_fifth_bit(const uint8_t* p, uint8_t* q) {
  for (int i = 0; i < 32; ++i) q[i] |= ((p[i / 8] >> (i % 8)) & 1) << 4;
}

// Scale and minimum of group g of a Q4_K or Q5_K super-block: 6 bits each in 12 bytes.
void group_scales(const uint8_t* s, int g, uint8_t* out) {
  const bool lower = g < 4;
  out[0] = lower ? s[g] & 63 : (s[g + 4] & 15) | ((s[g - 4] >> 6) << 4);
  out[1] = lower ? s[g + 4] & 63 : (s[g + 4] >> 4) | ((s[g] >> 6) << 4);
}

// Scale g of the 16 of a Q3_K super-block: 6 bits less 32, as s8.
uint8_t small_scale(const uint8_t* s, int g) {
  const int low = (s[g % 8] >> (g / 8 * 4)) & 15, high = (s[8 + g % 4] >> (g / 4 * 2)) & 3;
  return uint8_t((low | high << 4) - 32);
}

// Reads block b (of 32 elements) of a row in the file's layout.
void read_block(WeightType type, const uint8_t* row, int b, Block& out) {
  const int g = b % 8;
  switch (type) {
    case WeightType::kQ4_0: case WeightType::kQ4_1: case WeightType::kQ5_0: case WeightType::kQ5_1: {
      const bool five = type == WeightType::kQ5_0 || type == WeightType::kQ5_1;
      const int scales = type == WeightType::kQ4_1 || type == WeightType::kQ5_1 ? 4 : 2;
      const uint8_t* p = row + size_t(b) * (scales + (five ? 4 : 0) + 16);
      std::memcpy(out.scale, p, scales);
      unpack_nibbles(p + scales + (five ? 4 : 0), out.q);
      if (five) add_fifth_bit(p + scales, out.q);
      break;
    }
    case WeightType::kQ8_0: {
      const uint8_t* p = row + size_t(b) * 34;
      std::memcpy(out.scale, p, 2);
      for (int i = 0; i < 32; ++i) out.q[i] = p[2 + i] ^ 0x80;
      break;
    }
    case WeightType::kQ4_K: case WeightType::kQ5_K: {
      const bool five = type == WeightType::kQ5_K;
      const uint8_t* p = row + size_t(b / 8) * (five ? 176 : 144);
      std::memcpy(out.super, p, 4);
      group_scales(p + 4, g, out.scale);
      const uint8_t* low = p + (five ? 48 : 16) + 32 * (g / 2);
      for (int i = 0; i < 32; ++i) {
        out.q[i] = (low[i] >> (g % 2 * 4)) & 15;
        if (five) out.q[i] |= ((p[16 + i] >> g) & 1) << 4;
      }
      break;
    }
    case WeightType::kQ6_K: {
      const uint8_t* p = row + size_t(b / 8) * 210;
      std::memcpy(out.super, p + 208, 2);
      std::memcpy(out.scale, p + 192 + 2 * g, 2);
      const int h = g / 4, k = g % 4;
      for (int i = 0; i < 32; ++i) {
        const int lo = (p[64 * h + 32 * (k % 2) + i] >> (k / 2 * 4)) & 15;
        out.q[i] = uint8_t(lo | ((p[128 + 32 * h + i] >> (2 * k)) & 3) << 4);
      }
      break;
    }
    case WeightType::kQ2_K: {
      const uint8_t* p = row + size_t(b / 8) * 84;
      std::memcpy(out.super, p + 80, 4);
      std::memcpy(out.scale, p + 2 * g, 2);
      for (int i = 0; i < 32; ++i) out.q[i] = (p[16 + 32 * (g / 4) + i] >> (g % 4 * 2)) & 3;
      break;
    }
    case WeightType::kQ3_K: {
      const uint8_t* p = row + size_t(b / 8) * 110;
      std::memcpy(out.super, p + 108, 2);
      for (int h = 0; h < 2; ++h) out.scale[h] = small_scale(p + 96, 2 * g + h);
      for (int i = 0; i < 32; ++i)
        out.q[i] = uint8_t(((p[32 + 32 * (g / 4) + i] >> (g % 4 * 2)) & 3) | ((p[i] >> g) & 1) << 2);
      break;
    }
    case WeightType::kIQ4_NL: {
      const uint8_t* p = row + size_t(b) * 18;
      std::memcpy(out.scale, p, 2);
      unpack_nibbles(p + 2, out.q);
      break;
    }
    case WeightType::kIQ4_XS: {
      const uint8_t* p = row + size_t(b / 8) * 136;
      std::memcpy(out.super, p, 2);
      const int low = (p[4 + g / 2] >> (g % 2 * 4)) & 15, high = (p[2 + g / 4] >> (g % 4 * 2)) & 3;
      out.scale[0] = uint8_t((low | high << 4) - 32);
      unpack_nibbles(p + 8 + 16 * g, out.q);
      break;
    }
    default: {
      const int n = chunk_blocks(type);
      const uint8_t* p = row + size_t(b / n) * size_t(quant::find_format(type)->block_bytes);
      std::memcpy(out.super, p, 2);
      out.super[2] = uint8_t(p[2] - (is_int4(type) ? 8 : 128));
      const uint8_t* codes = p + 3 + b % n * (is_int4(type) ? 16 : 32);
      for (int i = 0; i < 32; ++i) out.q[i] = is_int4(type) ? (codes[i / 2] >> (i % 2 * 4)) & 15 : codes[i];
      break;
    }
  }
}

// Adds row r's block b to a zeroed tile.
void write_block(WeightType type, uint8_t* tile, int b, int r, const Block& in) {
  const PlaneSizes s = plane_sizes(type);
  const ChunkLayout l = chunk_layout(type);
  uint8_t* chunk = tile + size_t(b / chunk_blocks(type)) * size_t(l.bytes);
  const int g = b % chunk_blocks(type);
  uint8_t* low = chunk + g * s.low + 4 * r;
  uint8_t* high = chunk + l.high + g * s.high + 4 * r;
  for (int k = 0; k < kBlock; ++k) {
    const int i = k / 4, byte = k % 4, q = in.q[k];
    if (s.low == 512) {
      low[64 * i + byte] = uint8_t(q);
      continue;
    }
    if (s.low == 128) low[64 * (i / 4) + byte] |= uint8_t((q & 3) << (i % 4 * 2));
    else low[64 * (i / 2) + byte] |= uint8_t((q & 15) << (i % 2 * 4));
    if (s.high == 64) high[byte] |= uint8_t((q >> low_bits(type)) << i);
    if (s.high == 128) high[64 * (i / 4) + byte] |= uint8_t((q >> 4) << (i % 4 * 2));
  }
  uint8_t* scale = chunk + l.scale + g * s.scale;
  if (is_grouped(type)) {
    std::memcpy(chunk + l.super + 2 * r, in.super, 2);
    chunk[l.super + 32 + r] = in.super[2];
  } else if (s.super != 0) {  // byte scales
    scale[r] = in.scale[0];
    if (s.scale == 32) scale[16 + r] = in.scale[1];
    uint8_t* super = chunk + l.super;
    std::memcpy(super + 2 * r, in.super, 2);
    if (s.super == 64) std::memcpy(super + 32 + 2 * r, in.super + 2, 2);
  } else {
    std::memcpy(scale + 2 * r, in.scale, 2);
    if (s.scale == 64) std::memcpy(scale + 32 + 2 * r, in.scale + 2, 2);
  }
}

// Row r of a tile of FP8, from the row's blocks of scale and codes.
void pack_fp8_row(WeightType type, const uint8_t* row, int cols, uint8_t* tile, int r) {
  const int unit = side_unit(type);
  for (int k = 0; k < cols; k += unit, row += 4 + unit, tile += unit * kTileRows + kTileRows * 4) {
    float scale;
    std::memcpy(&scale, row, 4);
    scale *= 256;
    std::memcpy(tile + unit * kTileRows + 4 * r, &scale, 4);
    for (int i = 0; i < unit; ++i) tile[i * kTileRows + r] = row[4 + i];
  }
}

}  // namespace

size_t packed_bytes(WeightType type, int rows, int cols) noexcept {
  const quant::WeightFormat* f = quant::find_format(type);
  if (!f || cols % f->block_elements != 0 || (!is_float_type(type) && plane_sizes(type).low == 0)) return 0;
  return size_t((rows + kTileRows - 1) / kTileRows) * tile_bytes(type, cols);
}

void pack(WeightType type, int, int cols, const void* src, void* dst, int row_begin, int row_end) noexcept {
  const size_t row_bytes = quant::row_bytes(*quant::find_format(type), size_t(cols));
  const size_t bytes = tile_bytes(type, cols);
  const size_t element = type == WeightType::kF32 ? 4 : 2;
  for (int row0 = row_begin; row0 < row_end; row0 += kTileRows) {
    uint8_t* tile = static_cast<uint8_t*>(dst) + size_t(row0 / kTileRows) * bytes;
    std::memset(tile, 0, bytes);
    for (int r = 0; r < std::min(kTileRows, row_end - row0); ++r) {
      const uint8_t* row = static_cast<const uint8_t*>(src) + size_t(row0 + r) * row_bytes;
      if (is_fp8(type)) {
        pack_fp8_row(type, row, cols, tile, r);
        continue;
      }
      if (is_float_type(type)) {
        const bool pairs = type == WeightType::kBF16;
        for (int k = 0; k < cols; ++k) {
          const size_t at = pairs ? (size_t(k / 2) * kTileRows + r) * 2 + k % 2 : size_t(k) * kTileRows + r;
          std::memcpy(tile + at * element, row + k * element, element);
        }
        continue;
      }
      for (int b = 0; b < cols / kBlock; ++b) {
        Block block{};
        read_block(type, row, b, block);
        write_block(type, tile, b, r, block);
      }
    }
  }
}

}  // namespace sluice::kernels::cpu
