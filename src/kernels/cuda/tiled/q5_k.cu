#include "kernels/cuda/tiled/q5_k.h"
#include "kernels/cuda/tiled_products.cuh"

namespace sluice::kernels::cuda {
extern const TiledType tiled_q5_k = tiled_type<TiledQ5_K>();
}  // namespace sluice::kernels::cuda
