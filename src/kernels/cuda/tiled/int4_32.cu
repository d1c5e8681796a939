#include "kernels/cuda/tiled/groups.h"
#include "kernels/cuda/tiled_products.cuh"

namespace sluice::kernels::cuda {
extern const TiledType tiled_int4_32 = tiled_type<TiledGroups<WeightType::kInt4_32, 4, 32>>();
}  // namespace sluice::kernels::cuda
