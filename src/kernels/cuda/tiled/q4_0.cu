#include "kernels/cuda/tiled/q4_0.h"
#include "kernels/cuda/tiled_products.cuh"

namespace sluice::kernels::cuda {
extern const TiledType tiled_q4_0 = tiled_type<TiledQ4_0>();
}  // namespace sluice::kernels::cuda
