#include "kernels/cuda/tiled/q6_k.h"
#include "kernels/cuda/tiled_products.cuh"

namespace sluice::kernels::cuda {
extern const TiledType tiled_q6_k = tiled_type<TiledQ6_K>();
}  // namespace sluice::kernels::cuda
