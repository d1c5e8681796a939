#include "kernels/cuda/tiled/groups.h"
#include "kernels/cuda/tiled_products.cuh"

namespace sluice::kernels::cuda {
extern const TiledType tiled_int8_32 = tiled_type<TiledGroups<WeightType::kInt8_32, 8, 32>>();
}  // namespace sluice::kernels::cuda
