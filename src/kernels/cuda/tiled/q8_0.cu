#include "kernels/cuda/tiled/q8_0.h"
#include "kernels/cuda/tiled_products.cuh"

namespace sluice::kernels::cuda {
extern const TiledType tiled_q8_0 = tiled_type<TiledQ8_0>();
}  // namespace sluice::kernels::cuda
