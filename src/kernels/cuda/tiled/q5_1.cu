#include "kernels/cuda/tiled/q5_1.h"
#include "kernels/cuda/tiled_products.cuh"

namespace sluice::kernels::cuda {
extern const TiledType tiled_q5_1 = tiled_type<TiledQ5_1>();
}  // namespace sluice::kernels::cuda
