#include "kernels/cuda/tiled/q4_1.h"
#include "kernels/cuda/tiled_products.cuh"

namespace sluice::kernels::cuda {
extern const TiledType tiled_q4_1 = tiled_type<TiledQ4_1>();
}  // namespace sluice::kernels::cuda
