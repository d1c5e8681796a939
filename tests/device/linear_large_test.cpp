// Products of many tokens (linear_large.cu).
#include "kernels/cuda/linear_large.cu"
#include "tests/device/product_cases.h"

namespace sluice::kernels::cuda {
namespace {

class LinearLarge : public testing::TestWithParam<Case> {};
TEST_P(LinearLarge, IsTheProductInAnyOrder) { holds(large_takes, multiply_large, GetParam()); }
INSTANTIATE_TEST_SUITE_P(, LinearLarge,
                         testing::Values(Case{WeightType::kBF16, 1, 8, 8, DType::kF32, false, false},               // one step, one token, columns that end within it
                                         Case{WeightType::kBF16, 130, 264, 328, DType::kF32, true, true},           // more steps than stages
                                         Case{WeightType::kF16, 300, 600, 128, DType::kF16, false, false},          // fewer; several tiles a cluster
                                         Case{WeightType::kBF16, 40, 1040, 192, DType::kBF16, true, false},
                                         Case{WeightType::kF16, 70, 272, 72, DType::kF16, false, false, Gate::kSilu},
                                         Case{WeightType::kBF16, 260, 144, 320, DType::kBF16, false, false, Gate::kGelu},
                                         Case{WeightType::kFp8_128, 140, 272, 640, DType::kF32, true, true},
                                         Case{WeightType::kFp8_128, 20, 528, 144, DType::kBF16, false, false, Gate::kSilu}));

}  // namespace
}  // namespace sluice::kernels::cuda
