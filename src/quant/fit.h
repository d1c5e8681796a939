// fit: the encode that searches. It looks for the scales, offsets and levels of each block that make the weighted squared error
//   sum over rows and columns of importance[col] * (value - x)^2
// small: weighted least squares over scale and offset in turn with reassigned levels, from several starts; then the integer
// codes of the groups' scales and offsets, each against the error itself, in turn with the block's own two floats.
// The same bytes on every machine: each lane of the vector code computes one group alone. Pure; any thread.
#pragma once
#include <cstddef>
#include <cstdint>

#include "quant/weight_format.h"

namespace sluice::quant {

// Encodes rows x cols values (cols a multiple of the block's elements), all finite and at most kLargestHalf in size.
// importance: of the columns, not negative, or nullptr where nothing is known. Then an error counts 1 + x^2 / mean x^2 of its block: the
// larger weights of a row tend to be those whose inputs matter, which was measured to cost less than taking all alike where bits are
// few (docs/adr/0017), and nothing where they are many. Formats without a shape (plain floats) are encoded as they are.
void fit(const WeightFormat& format, const float* src, const float* importance, uint8_t* dst, size_t rows, size_t cols);
// The same choice for one row of `count` values, not packed: count / shape.elements blocks.
void fit_codes(const BlockShape& shape, const float* x, const float* importance, size_t count, BlockCodes* out);

// Index of the first value that no block can hold (NaN, infinite, or beyond kLargestHalf), or count.
size_t first_unfit(const float* x, size_t count);

}  // namespace sluice::quant
