// Tiles of the CUDA backend on the host: packed, and read again by the code that its kernels read them with, they are the file's weights, exactly.
#include <gtest/gtest.h>

#include "kernels/cuda/tiled/groups.h"
#include "kernels/cuda/tiled/iq4_nl.h"
#include "kernels/cuda/tiled/iq4_xs.h"
#include "kernels/cuda/tiled/q2_k.h"
#include "kernels/cuda/tiled/q3_k.h"
#include "kernels/cuda/tiled/q4_0.h"
#include "kernels/cuda/tiled/q4_1.h"
#include "kernels/cuda/tiled/q4_k.h"
#include "kernels/cuda/tiled/q5_0.h"
#include "kernels/cuda/tiled/q5_1.h"
#include "kernels/cuda/tiled/q5_k.h"
#include "kernels/cuda/tiled/q6_k.h"
#include "kernels/cuda/tiled/q8_0.h"
#include "kernels/cuda/tiled_pack.h"
#include "kernels/cuda/tiled_read.h"
#include "lab/on_backend.h"

namespace sluice::kernels::cuda {
namespace {

template <class T>
class Tiled : public testing::Test {};
using Types = testing::Types<TiledQ4_0, TiledQ4_1, TiledQ5_0, TiledQ5_1, TiledQ8_0, TiledQ2_K, TiledQ3_K, TiledQ4_K, TiledQ5_K, TiledQ6_K, TiledIQ4_NL, TiledIQ4_XS,
                             TiledGroups<WeightType::kInt4_32, 4, 32>, TiledGroups<WeightType::kInt4_64, 4, 64>, TiledGroups<WeightType::kInt4_128, 4, 128>,
                             TiledGroups<WeightType::kInt8_32, 8, 32>, TiledGroups<WeightType::kInt8_64, 8, 64>, TiledGroups<WeightType::kInt8_128, 8, 128>>;
TYPED_TEST_SUITE(Tiled, Types);

struct Tiles {
  std::vector<uint8_t> file, packed;
  std::vector<float> want;
};
// Packed in two parts into memory that was not zero.
template <class T>
Tiles pack(int rows, int cols, uint64_t seed) {
  Rng rng(seed);
  Tiles t;
  t.file = lab::random_weight(rng, T::kType, rows, cols);
  t.want = lab::decode_weight(T::kType, t.file, rows, cols);
  t.packed.assign(tile_bytes<T>(cols) * size_t((rows + kUnitRows - 1) / kUnitRows), 0xFF);
  pack_tiles<T>(rows, cols, t.file.data(), t.packed.data(), kUnitRows, rows);
  pack_tiles<T>(rows, cols, t.file.data(), t.packed.data(), 0, kUnitRows);
  return t;
}

TYPED_TEST(Tiled, AreTheFilesWeights) {
  const int block = quant::find_format(TypeParam::kType)->block_elements;
  for (int cols : {block, 3 * block, 5 * block}) {
    const int rows = 39;
    const Tiles t = pack<TypeParam>(rows, cols, uint64_t(cols));
    for (int row = 0; row < rows; ++row)
      for (int k = 0; k < cols; k += 8) {
        float got[8];
        tiled8<TypeParam>(t.packed.data(), cols, row, k, got);
        for (int i = 0; i < 8; ++i) ASSERT_EQ(got[i], t.want[size_t(row) * size_t(cols) + size_t(k + i)]) << "row " << row << ", column " << k + i << " of " << cols;
      }
  }
}

// Past the last row and column.
TYPED_TEST(Tiled, AreFilledUpWithZeros) {
  const int rows = 17, cols = quant::find_format(TypeParam::kType)->block_elements;
  const Tiles t = pack<TypeParam>(rows, cols, 1);
  const int padded = units_of(cols) * kUnitCols;
  for (int row = 0; row < 2 * kUnitRows; ++row)
    for (int k = 0; k < padded; k += 8) {
      if (row < rows && k < cols) continue;
      float got[8];
      tiled8<TypeParam>(t.packed.data(), cols, row, k, got);
      for (float v : got) ASSERT_EQ(v, 0) << "row " << row << ", column " << k;
    }
}

// A lane's words of a product are those of the tensor cores' left factor of 16 x 16, and scales what the layout says.
TYPED_TEST(Tiled, LieInFragmentOrder) {
  using T = TypeParam;
  const int cols = std::max(256, quant::find_format(T::kType)->block_elements);
  const Tiles t = pack<T>(kUnitRows + 1, cols, 2);
  for (int unit = 0; unit < cols / kUnitCols; ++unit)
    for (int lane = 0; lane < 32; ++lane)
      for (int half = 0; half < kUnitHalves; ++half) {
        const LaneInMemory<T> in{t.packed.data() + unit * kUnitBytes<T>, lane};
        uint32_t a[4];
        T::left(in, half, a);
        for (int p = 0; p < 4; ++p)
          for (int i = 0; i < 2; ++i) {
            const int row = lane / 4 + 8 * (p % 2), column = unit * kUnitCols + half * 16 + lane % 4 * 2 + p / 2 * 8 + i;
            float v = T::scale(in, half, p % 2) * half_bits(a[p] >> 16 * i);
            if constexpr (T::kHasMin) v -= T::min(in, half, p % 2);
            ASSERT_EQ(v, t.want[size_t(row) * size_t(cols) + size_t(column)]) << "lane " << lane << ", half " << half << ", pair " << p;
            if constexpr (T::kFileHalves) {
              ASSERT_EQ(half_bits(in.scale(T::scale_word(half)) >> 16 * (p % 2)), T::scale(in, half, p % 2));
              if constexpr (T::kHasMin) { ASSERT_EQ(-half_bits(in.scale(T::min_word(half)) >> 16 * (p % 2)), T::min(in, half, p % 2)); }
            }
          }
      }
}

// Copies of 16, 8 and 4 bytes want what they copy to lie evenly, in a unit and in the ring, where every lane has scales to itself.
TYPED_TEST(Tiled, LieInWholeCopies) {
  using T = TypeParam;
  EXPECT_EQ(kUnitBytes<T> % 16, 0);
  std::vector<int> taken(size_t(kCodeBytes<T>));
  for (int lane = 0; lane < 32; ++lane)
    for (int i = 0; i < kCodeWords<T>; ++i) {
      if (i % 4 == 0) { EXPECT_EQ(code_place<T>(lane, i) % (i / 4 < T::kBits / 2 ? 16 : 8), 0); }
      for (int byte = 0; byte < 4; ++byte) ++taken[size_t(code_place<T>(lane, i) + byte)];
    }
  EXPECT_EQ(std::count(taken.begin(), taken.end(), 1), kCodeBytes<T>);
  for (int holders : {8, 32}) {
    taken.assign(size_t(holders * T::kScaleBytes), 0);
    for (int who = 0; who < holders; ++who)
      for (int i = 0; i < T::kScaleBytes; ++i) {
        const int left = T::kScaleBytes - i, copy = left >= 16 ? 16 : left >= 8 ? 8 : 4;
        if (i % 16 == 0 || i == T::kScaleBytes / 8 * 8) { EXPECT_EQ((kCodeBytes<T> + scale_place<T>(who, holders, i)) % copy, 0); }
        ++taken[size_t(scale_place<T>(who, holders, i))];
      }
    EXPECT_EQ(std::count(taken.begin(), taken.end(), 1), holders * T::kScaleBytes);
  }
}

}  // namespace
}  // namespace sluice::kernels::cuda
