// WeightFormat: one block layout of weights - how many elements and bytes, and the reference decode and encode of a row.
// encode is the plain one, round to nearest; the one that searches is quant/fit.h, which works from `shape` and `pack`.
// Blocks run along a row; a row is a whole number of blocks. One file of quant/formats/ a layout.
// Source of layouts: the GGUF specification. Pure; any thread.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "quant/block_codes.h"
#include "tensor/dtype.h"

namespace sluice::quant {

struct WeightFormat {
  WeightType type;
  const char* name;       // "q4_k"
  int block_elements;     // 1 for plain floats
  int block_bytes;
  // Decodes count elements (a multiple of block_elements) from src.
  void (*decode)(const uint8_t* src, float* dst, size_t count);
  // Round to nearest: where PyPI `gguf` encodes a type, these are its bytes, of all finite values that the block's f16 scale can span.
  void (*encode)(const float* src, uint8_t* dst, size_t count);
  // Sets the scales of a block of random bytes so that its values have a mean near 0 and a standard deviation near `deviation`
  // (synthetic weights). nullptr of plain floats.
  void (*scale_random)(uint8_t* block, float deviation);
  // Of quantised types: what values a block can have, and a choice of them as its bytes. nullptr of plain floats.
  const BlockShape* shape = nullptr;
  void (*pack)(const BlockCodes& codes, uint8_t* block) = nullptr;
};

std::span<const WeightFormat* const> formats_table();  // every file of formats/
const WeightFormat* find_format(WeightType type);       // nullptr: unknown
const WeightFormat* find_format(uint32_t ggml_type_id);
// Bytes of a row of `cols` elements; cols must be a multiple of block_elements.
inline size_t row_bytes(const WeightFormat& f, size_t cols) { return cols / f.block_elements * f.block_bytes; }

}  // namespace sluice::quant
