// In which order clusters take the tiles of a product of many tokens (linear_large.cu). Compiles for hosts, where it is tested.
#pragma once
#include "kernels/cuda/half_words.h"

namespace sluice::kernels::cuda {

// Pairs of tiles of tokens whose inputs the second-level cache keeps while all rows pass by.
constexpr int kPairsTogether = 16;

struct LargeTile {
  int pair, rows;  // which of the pairs of tiles of tokens, which tile of rows
};
// number: in [0, pairs * row_tiles). Neighbours have the same rows, so that those are read once.
SLUICE_ANYWHERE constexpr LargeTile large_tile(int number, int pairs, int row_tiles) {
  const int whole = kPairsTogether * row_tiles, first = number / whole * kPairsTogether, within = number % whole;
  const int together = pairs - first < kPairsTogether ? pairs - first : kPairsTogether;
  return {first + within % together, within / together};
}

}  // namespace sluice::kernels::cuda
