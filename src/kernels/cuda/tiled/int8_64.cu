#include "kernels/cuda/tiled/groups.h"
#include "kernels/cuda/tiled_products.cuh"

namespace sluice::kernels::cuda {
extern const TiledType tiled_int8_64 = tiled_type<TiledGroups<WeightType::kInt8_64, 8, 64>>();
}  // namespace sluice::kernels::cuda
