// Packed weights of the cpu backends: tiles of 16 rows, the last one padded with zero rows. A tile is up to four planes one
// after the other, each running along K, so that a kernel reads a few sequential streams and quants stay 64-byte aligned:
//   low    quants; a block of 32 k: 4-bit types 4 x 64 bytes - byte (row r, b) of load j holds k = 8j + b in its low and
//          k = 8j + 4 + b in its high nibble; Q8_0 8 x 64 bytes of q + 128 - byte (r, b) of load i holds k = 4i + b
//   high   5-bit types 64 bytes a block: bit i of byte (r, b) is bit 4 of k = 4i + b;
//          6-bit types 2 x 64 bytes: bits 2c, 2c + 1 of byte (r, b) of half h are bits 4, 5 of k = 16h + 4c + b
//   scale  a block of 16 rows each: f16 d (and f16 m), or u8 scale and u8 min, or two s8 scales (Q6_K, 16 k each)
//   super  K-quants, 256 k: f16 d of 16 rows (and f16 dmin)
// Float types are one plane: [K][16]. Bytes are those of the file but for the wider K-quant scales.
// Everything here has internal linkage: files of different instruction sets include it.
#pragma once
#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace sluice::kernels::cpu {
namespace {

constexpr int kTileRows = 16;
constexpr int kBlock = 32;  // k a quantised block of weights and of activations

struct PlaneSizes {
  int low, high, scale;  // bytes a block of 32 k
  int super;             // bytes a super-block of 256 k
};

constexpr PlaneSizes plane_sizes(WeightType type) {
  switch (type) {
    case WeightType::kQ4_0: return {256, 0, 32, 0};
    case WeightType::kQ4_1: return {256, 0, 64, 0};
    case WeightType::kQ5_0: return {256, 64, 32, 0};
    case WeightType::kQ5_1: return {256, 64, 64, 0};
    case WeightType::kQ8_0: return {512, 0, 32, 0};
    case WeightType::kQ4_K: return {256, 0, 32, 64};
    case WeightType::kQ5_K: return {256, 64, 32, 64};
    case WeightType::kQ6_K: return {256, 128, 32, 32};
    default: return {0, 0, 0, 0};
  }
}

constexpr bool is_float_type(WeightType type) {
  return type == WeightType::kF32 || type == WeightType::kF16 || type == WeightType::kBF16;
}

struct TileLayout {
  size_t high, scale, super, bytes;  // offsets of the planes in a tile (low is 0), and its size
};

constexpr TileLayout tile_layout(WeightType type, int cols) {
  if (is_float_type(type)) {
    const size_t element = type == WeightType::kF32 ? 4 : 2;
    return {0, 0, 0, (size_t(cols) * kTileRows * element + 63) / 64 * 64};
  }
  const PlaneSizes s = plane_sizes(type);
  const size_t blocks = size_t(cols / kBlock);
  TileLayout l{};
  l.high = blocks * size_t(s.low);
  l.scale = l.high + blocks * size_t(s.high);
  l.super = l.scale + blocks * size_t(s.scale);
  l.bytes = (l.super + blocks / 8 * size_t(s.super) + 63) / 64 * 64;
  return l;
}

}  // namespace
}  // namespace sluice::kernels::cpu
