// Packed weights of the cpu backends: tiles of 16 rows, the last one padded with zero rows. Along K a tile is a row of
// chunks, all that some blocks of 32 k need, so that a kernel reads one stream from its first byte to its last and can ask for
// memory ahead. A chunk holds chunk_blocks blocks (the last chunk may be part empty), part by part:
//   low    quants; a block: 4-bit types 4 x 64 bytes - byte (row r, b) of load j holds k = 8j + b in its low and
//          k = 8j + 4 + b in its high nibble; Q8_0 8 x 64 bytes of q + 128 - byte (r, b) of load i holds k = 4i + b
//          2- and 3-bit types 2 x 64 bytes: bits 2c, 2c + 1 of byte (r, b) of half h are bits 0, 1 of k = 16h + 4c + b
//   high   5-bit types 64 bytes a block: bit i of byte (r, b) is bit 4 of k = 4i + b; 3-bit types the same of bit 2;
//          6-bit types 2 x 64 bytes: as the 2 bits above, of bits 4, 5
//   scale  a block of 16 rows each: f16 d (and f16 m); or u8 scale and u8 min; or two of 16 k each, s8 (Q3_K, Q6_K) or scale and
//          min as nibbles (Q2_K); or one s8 (IQ4_XS)
//   super  K-quants and IQ4_XS, once a chunk: f16 d of 16 rows (and f16 dmin)
// Grouped integers: 4 bits as above, 8 bits as Q8_0; a chunk is what shares a scale, and super is f16 scales and s8 zeros of 16 rows,
// zeros less half the range of codes: 0 where the group is symmetric.
// FP8, chunk by chunk: [unit][16] codes, then f32 scales of 16 rows times 256, since codes are widened as halves of another bias.
// F32 and F16: [K][16]. BF16: [K / 2][16][2], two k side by side as instructions that multiply pairs want them; an odd K has a
// zero at its end. Bytes are those of the file but for the wider K-quant scales.
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
  int super;             // bytes a chunk
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
    case WeightType::kQ2_K: return {128, 0, 32, 64};
    case WeightType::kQ3_K: return {128, 64, 32, 32};
    case WeightType::kIQ4_NL: return {256, 0, 32, 0};
    case WeightType::kIQ4_XS: return {256, 0, 16, 32};
    default: return is_int4(type) ? PlaneSizes{256, 0, 0, 48} : is_int8(type) ? PlaneSizes{512, 0, 0, 48} : PlaneSizes{0, 0, 0, 0};
  }
}
constexpr int low_bits(WeightType type) { return plane_sizes(type).low / 64; }  // of a quant in `low`
constexpr int chunk_blocks(WeightType type) {
  return is_grouped(type) ? side_unit(type) / kBlock : plane_sizes(type).super != 0 ? 8 : 2;
}

// Whose products take float inputs.
constexpr bool is_float_type(WeightType type) {
  return type == WeightType::kF32 || type == WeightType::kF16 || type == WeightType::kBF16 || is_fp8(type);
}

// Offsets of a chunk's parts (low is 0), and its size.
struct ChunkLayout { int high, scale, super, bytes; };

constexpr ChunkLayout chunk_layout(WeightType type) {
  const PlaneSizes s = plane_sizes(type);
  const int n = chunk_blocks(type);
  const int high = n * s.low, scale = high + n * s.high, super = scale + n * s.scale;
  return {high, scale, super, (super + s.super + 63) / 64 * 64};
}

constexpr size_t tile_bytes(WeightType type, int cols) {
  if (is_fp8(type)) return size_t(cols / side_unit(type)) * size_t(side_unit(type) * kTileRows + kTileRows * 4);
  if (type == WeightType::kBF16) cols += cols % 2;
  if (is_float_type(type)) return (size_t(cols) * kTileRows * (type == WeightType::kF32 ? 4 : 2) + 63) / 64 * 64;
  const int n = chunk_blocks(type);
  return size_t((cols / kBlock + n - 1) / n) * size_t(chunk_layout(type).bytes);
}

}  // namespace
}  // namespace sluice::kernels::cpu
