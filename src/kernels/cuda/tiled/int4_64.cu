#include "kernels/cuda/tiled/groups.h"
#include "kernels/cuda/tiled_products.cuh"

namespace sluice::kernels::cuda {
extern const TiledType tiled_int4_64 = tiled_type<TiledGroups<WeightType::kInt4_64, 4, 64>>();
}  // namespace sluice::kernels::cuda
