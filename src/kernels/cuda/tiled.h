// Types whose weights lie in tiles (tiled_codes.h) and the kernels for them. A type is one if tiled/ has a file of its name, which makes a TiledType of
// the struct that says how it is packed and read (tiled_products.cuh).
#pragma once
#include <span>

#include "kernels/cuda/products.h"
#include "kernels/cuda/tiled_codes.h"

namespace sluice::kernels::cuda {

struct TiledType {
  WeightType type;
  int unit_bytes;  // a multiple of 16
  // Rows [row_begin, row_end) of a matrix in file layout into its tiles; row_begin is a multiple of 16. Any thread.
  void (*pack)(int rows, int cols, const void* src, void* dst, int row_begin, int row_end) noexcept;
  // Rows of x and the norm's weights are at multiples of 16 bytes. A few tokens, near memory bandwidth: inputs rounded to f16, weights as they are, sums in
  // float32. Any number of tokens is taken, in groups whose inputs fit shared memory; passes is how many, 0: one token's do not.
  void (*few)(CudaContext* c, const Product& p, const LinearArgs& a) noexcept;
  int (*passes)(const CudaContext* c, const Product& p) noexcept;
  // The same for some dozens of tokens and more (many_tiles.cuh): weights scaled to f16 in registers.
  void (*many)(CudaContext* c, const Product& p, const LinearArgs& a) noexcept;
  // Rows [begin, end) as f16 rows of cols, at `to`; begin is a multiple of 16.
  void (*expand)(CudaContext* c, const Output& o, int cols, int begin, int end, void* to) noexcept;
  FloatProducts floats;

  size_t tile_bytes(int cols) const { return size_t(units_of(cols)) * size_t(unit_bytes); }
};

std::span<const TiledType* const> tiled_table();        // every file of tiled/
const TiledType* find_tiled(WeightType type) noexcept;  // nullptr: the type is none
inline bool is_tiled(WeightType type) noexcept { return find_tiled(type) != nullptr; }

// Inputs of `few` in shared memory: rows of f16 and the sums of each 32 columns of each token, whether a type needs them or not, so that passes are the same
// for all.
constexpr int kFragmentTokens = 8;
constexpr int kFragmentPad = 32;  // halves after a row of inputs: neighbours start half the banks apart
SLUICE_ANYWHERE constexpr size_t fragment_bytes(int tokens, int cols) {
  const size_t padded = size_t(units_of(cols)) * kUnitCols;
  return (size_t(tokens) * (padded + kFragmentPad) * 2 + padded / 32 * kFragmentTokens * sizeof(float) + 127) / 128 * 128;
}

}  // namespace sluice::kernels::cuda
