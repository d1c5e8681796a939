// Products of dozens of tokens (linear_dense.cu, many_tiles.cuh). The device has 132 processors, and three clusters of any size find room.
#include "kernels/cuda/linear_dense.cu"
#include "tests/device/product_cases.h"

namespace sluice::kernels::cuda {
namespace {

class LinearDense : public testing::TestWithParam<Case> {};
TEST_P(LinearDense, IsTheProductInAnyOrder) { holds(dense_takes, multiply_dense, GetParam()); }
INSTANTIATE_TEST_SUITE_P(, LinearDense,
                         testing::Values(Case{WeightType::kBF16, 9, 8, 8, DType::kF32, false, false},              // one step
                                         Case{WeightType::kF16, 32, 200, 448, DType::kF32, true, true},            // one tile, shared by three blocks
                                         Case{WeightType::kBF16, 33, 600, 1088, DType::kBF16, true, false},        // three tiles, each shared by eight
                                         Case{WeightType::kBF16, 130, 1100, 576, DType::kF32, false, true},        // ten tiles, not shared: more steps than stages
                                         Case{WeightType::kF16, 70, 272, 328, DType::kF16, false, false, Gate::kSilu},
                                         Case{WeightType::kBF16, 260, 144, 320, DType::kBF16, false, false, Gate::kGelu},
                                         Case{WeightType::kFp8_128, 140, 272, 640, DType::kF32, true, true},
                                         Case{WeightType::kFp8_128, 60, 1300, 256, DType::kBF16, false, false},
                                         Case{WeightType::kFp8_128, 20, 336, 1040, DType::kBF16, false, false, Gate::kSilu}));

}  // namespace
}  // namespace sluice::kernels::cuda
