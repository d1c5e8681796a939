#include "kernels/cuda/tiled/groups.h"
#include "kernels/cuda/tiled_products.cuh"

namespace sluice::kernels::cuda {
extern const TiledType tiled_int8_128 = tiled_type<TiledGroups<WeightType::kInt8_128, 8, 128>>();
}  // namespace sluice::kernels::cuda
