// One token's key or value of one head as a cache keeps it, and int4's groups of keys: the reference encode and decode. What is right
// for every backend; layouts within a block are the backend's own.
//
// fp8: scale = largest magnitude / 448, codes e4m3 of x / scale. int8: scale = largest magnitude / 127, codes the nearest
// integers of x / scale. int4, for each group of 32 dimensions: minimum m, scale = (largest - m) / 15, codes the nearest integers
// of (x - m) / scale; dimension d of a group is in byte d % 16, in the low half where d < 16. Scales are rounded up and minima
// down to bfloat16, so that no code leaves its range. A row with an infinity or NaN has a NaN as scale, and reads as NaN.
//
// Keys have a few dimensions far larger than the rest, and one scale for all would round the rest away. Keys of int8 are
// therefore mixed first, by the orthogonal matrix H / sqrt(n) of Hadamard and Sylvester over blocks of n dimensions (the largest
// power of two that divides D): large ones spread over n, and since queries are mixed too, q.k stays as it was (as in QuaRot,
// arXiv:2404.00456). fp8 has a scale a code, nearly, and keys of it are not mixed.
//
// A dimension of keys keeps its size from token to token, so int4's are rounded by dimension, over 16 tokens (KIVI, arXiv:2402.02750). Dimension
// d has a minimum m[d] M and a scale s[d] S, with m in -127..127 and s in 0..255; M and S are bfloat16, the least that bring all d in
// range, m is rounded down and s up. Codes are the nearest integers of (x - m M) / (s S). What is rounded so are rows of int8, which is
// how the tokens are kept before. A group with a row that is NaN reads as NaN.
// Pure; any thread.
#pragma once
#include <cstdint>

#include "tensor/cache_type.h"

namespace sluice::quant {

// x: [D], as it is after rotation (and mixing). row: cache_row_bytes, codes first.
void encode_cache_row(CacheElement e, const float* x, int head_dim, uint8_t* row);
void decode_cache_row(CacheElement e, const uint8_t* row, int head_dim, float* x);

// rows: [16] of int8, side by side. group: closed_group_bytes: [16][D / 2] with dimensions 2i below and 2i + 1 above, s, m, S, M.
void close_key_group(const uint8_t* rows, int head_dim, uint8_t* group);
void decode_grouped_key(const uint8_t* group, int token, int head_dim, float* x);

constexpr int mixed_block(int head_dim) { return head_dim & -head_dim; }
void mix_dims(float* x, int head_dim);

}  // namespace sluice::quant
