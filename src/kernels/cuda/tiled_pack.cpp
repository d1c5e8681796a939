// Packing of tiles: words at a time, since a model has billions of weights. File layouts: the GGUF specification.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "kernels/cuda/tiled.h"
#include "quant/weight_format.h"

namespace sluice::kernels::cuda {
namespace {

// Two neighbouring bytes, and the two that are 8 further on.
uint32_t pairs_at(const uint8_t* p) {
  uint16_t low, high;
  std::memcpy(&low, p, 2);
  std::memcpy(&high, p + 8, 2);
  return low | uint32_t(high) << 16;
}
void put16(uint8_t* to, const uint8_t* from) { std::memcpy(to, from, 2); }

// The file's block that holds block b (32 columns) of a row's unit.
const uint8_t* block_at(WeightType type, const uint8_t* row, int unit, int b) {
  switch (type) {
    case WeightType::kQ4_0: return row + size_t(4 * unit + b) * 18;
    case WeightType::kQ4_1: return row + size_t(4 * unit + b) * 20;
    case WeightType::kQ8_0: return row + size_t(4 * unit + b) * 34;
    case WeightType::kQ4_K: return row + size_t(unit / 2) * 144;
    default: return row + size_t(unit / 2) * 210;
  }
}

// Four quants of block b, a byte each: elements 2 t, 2 t + 1, 2 t + 8 and 2 t + 9 of half m (16 columns).
uint32_t four_quants(WeightType type, const uint8_t* block, int unit, int b, int m, int t) {
  const auto four = [&](int at) { return pairs_at(block + at + 2 * t); };
  switch (type) {
    case WeightType::kQ4_0: return four(2) >> 4 * m & 0x0F0F0F0Fu;
    case WeightType::kQ4_1: return four(4) >> 4 * m & 0x0F0F0F0Fu;
    case WeightType::kQ8_0: return four(2 + 16 * m) ^ 0x80808080u;
    case WeightType::kQ4_K: return four(16 + 64 * (unit % 2) + 32 * (b / 2) + 16 * m) >> 4 * (b % 2) & 0x0F0F0F0Fu;
    default: {
      const uint32_t low = four(64 * (unit % 2) + 32 * (b % 2) + 16 * m) >> 4 * (b / 2) & 0x0F0F0F0Fu;
      return low | (four(128 + 32 * (unit % 2) + 16 * m) >> 2 * b & 0x03030303u) << 4;
    }
  }
}

// Bytes 0..3 to bits 0, 16, 8, 24: a pair of weights is the same bits of both halves of a word.
uint32_t spread(uint32_t v) { return (v & 0xFF0000FFu) | (v & 0xFF00u) << 8 | (v >> 8 & 0xFF00u); }

// upper: the quants of row g, lower: of g + 8; either may be null, past the last row.
void put_quants(WeightType type, const uint8_t* upper, const uint8_t* lower, int unit, int b, int g, uint8_t* to) {
  const uint32_t none = type == WeightType::kQ8_0 ? 0x80808080u : 0;
  for (int t = 0; t < 4; ++t) {
    const int lane = 4 * g + t;
    uint32_t high = 0;
    for (int m = 0; m < 2; ++m) {
      const uint32_t u = upper ? four_quants(type, block_at(type, upper, unit, b), unit, b, m, t) : none;
      const uint32_t l = lower ? four_quants(type, block_at(type, lower, unit, b), unit, b, m, t) : none;
      if (type == WeightType::kQ8_0) {
        const uint32_t words[2] = {(u & 0xFFFFu) | l << 16, u >> 16 | (l & 0xFFFF0000u)};
        std::memcpy(to + b * 512 + lane * 16 + m * 8, words, 8);
        continue;
      }
      const uint32_t word = spread(u & 0x0F0F0F0Fu) | spread(l & 0x0F0F0F0Fu) << 4;
      std::memcpy(to + b / 2 * 512 + lane * 16 + (b % 2 * 2 + m) * 4, &word, 4);
      // Two more bits, of element pairs p = 0 (row g), 1 (g + 8), 2, 3 at 2 (4 m + p) of either half.
      const uint32_t hu = u >> 4 & 0x03030303u, hl = l >> 4 & 0x03030303u;
      const auto pairs = [](uint32_t h) { return (h & 3) | (h >> 8 & 3) << 16 | (h >> 16 & 3) << 4 | (h >> 24 & 3) << 20; };
      high |= (pairs(hu) | pairs(hl) << 2) << 8 * m;
    }
    if (type == WeightType::kQ6_K) std::memcpy(to + 1024 + lane * 16 + b * 4, &high, 4);
  }
}

// Scales of one row (r: 0 upper, 1 lower) of a unit; blocks: how many of the four there are.
void put_scales(WeightType type, const uint8_t* row, int unit, int blocks, int g, int r, uint8_t* to) {
  uint8_t *first = to + g * 16, *second = to + 128;
  if (type == WeightType::kQ4_K) {
    const uint8_t *block = block_at(type, row, unit, 0), *s = block + 4;
    for (int b = 0; b < 4; ++b) {
      const int i = 4 * (unit % 2) + b;
      first[2 * b + r] = uint8_t(i < 4 ? s[i] & 63 : (s[i + 4] & 15) | (s[i - 4] >> 6) << 4);
      first[8 + 2 * b + r] = uint8_t(i < 4 ? s[i + 4] & 63 : s[i + 4] >> 4 | (s[i] >> 6) << 4);
    }
    std::memcpy(second + g * 8 + 4 * r, block, 4);
  } else if (type == WeightType::kQ6_K) {
    const uint8_t* block = block_at(type, row, unit, 0);
    for (int i = 0; i < 8; ++i) first[2 * i + r] = block[192 + 8 * (unit % 2) + i];
    put16(second + g * 4 + 2 * r, block + 208);
  } else {
    for (int b = 0; b < blocks; ++b) {
      const uint8_t* block = block_at(type, row, unit, b);
      put16(first + 4 * b + 2 * r, block);
      if (type == WeightType::kQ4_1) put16(second + g * 16 + 4 * b + 2 * r, block + 2);
    }
  }
}

}  // namespace

void pack_tiles(WeightType type, int rows, int cols, const void* src, void* dst, int row_begin, int row_end) noexcept {
  const size_t row_bytes = quant::row_bytes(*quant::find_format(type), size_t(cols));
  const auto row_at = [&](int r) { return r < rows ? static_cast<const uint8_t*>(src) + size_t(r) * row_bytes : nullptr; };
  for (int first = row_begin; first < row_end; first += kUnitRows) {
    uint8_t* unit_at = static_cast<uint8_t*>(dst) + size_t(first / kUnitRows) * tile_bytes(type, cols);
    for (int unit = 0; unit < units_of(cols); ++unit, unit_at += unit_bytes(type)) {
      std::memset(unit_at, 0, size_t(unit_bytes(type)));  // scales of zero where there is nothing
      const int blocks = std::min(4, cols / 32 - 4 * unit);
      for (int g = 0; g < 8; ++g) {
        const uint8_t *upper = row_at(first + g), *lower = row_at(first + g + 8);
        for (int b = 0; b < blocks; ++b) put_quants(type, upper, lower, unit, b, g, unit_at);
        for (int r = 0; r < 2; ++r)
          if (const uint8_t* row = r ? lower : upper) put_scales(type, row, unit, blocks, g, r, unit_at + unit_pieces(type) * 512);
      }
    }
  }
}

}  // namespace sluice::kernels::cuda
