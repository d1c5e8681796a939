#include "kernels/cuda/tiled/q5_0.h"
#include "kernels/cuda/tiled_products.cuh"

namespace sluice::kernels::cuda {
extern const TiledType tiled_q5_0 = tiled_type<TiledQ5_0>();
}  // namespace sluice::kernels::cuda
