// Tiles of the CUDA backend's products of many tokens: each is taken once, and those that run together share what they read.
#include <gtest/gtest.h>

#include <set>

#include "kernels/cuda/large_tiles.h"

namespace sluice::kernels::cuda {
namespace {

TEST(LargeTiles, EachIsTakenOnce) {
  for (const int pairs : {1, 2, 5, 15, 16, 17, 31, 32, 33, 64})
    for (const int rows : {1, 2, 3, 16, 24, 112, 501}) {
      std::set<std::pair<int, int>> seen;
      for (int i = 0; i < pairs * rows; ++i) {
        const LargeTile t = large_tile(i, pairs, rows);
        ASSERT_TRUE(t.pair >= 0 && t.pair < pairs && t.rows >= 0 && t.rows < rows) << pairs << " x " << rows << ": " << i;
        ASSERT_TRUE(seen.insert({t.pair, t.rows}).second) << pairs << " x " << rows << ": " << i;
      }
    }
}

TEST(LargeTiles, NeighboursShareRows) {
  constexpr int kPairs = 40, kRows = 112, kClusters = 66;
  for (int i = 0; i + kClusters <= kPairs * kRows; ++i) {
    std::set<int> rows, pairs;
    for (int n = i; n < i + kClusters; ++n) rows.insert(large_tile(n, kPairs, kRows).rows), pairs.insert(large_tile(n, kPairs, kRows).pair);
    // But where one group of pairs ends and the next begins.
    const bool ends = i / (kPairsTogether * kRows) != (i + kClusters - 1) / (kPairsTogether * kRows);
    EXPECT_LE(pairs.size(), size_t(ends ? 2 * kPairsTogether : kPairsTogether)) << i;
    EXPECT_LE(rows.size(), size_t((kClusters + 7) / 8 + 2)) << i;
  }
}

}  // namespace
}  // namespace sluice::kernels::cuda
