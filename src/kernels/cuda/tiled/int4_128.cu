#include "kernels/cuda/tiled/groups.h"
#include "kernels/cuda/tiled_products.cuh"

namespace sluice::kernels::cuda {
extern const TiledType tiled_int4_128 = tiled_type<TiledGroups<WeightType::kInt4_128, 4, 128>>();
}  // namespace sluice::kernels::cuda
