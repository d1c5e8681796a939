#include "kernels/cuda/tiled/q4_k.h"
#include "kernels/cuda/tiled_products.cuh"

namespace sluice::kernels::cuda {
extern const TiledType tiled_q4_k = tiled_type<TiledQ4_K>();
}  // namespace sluice::kernels::cuda
