#include "kernels/cuda/tiled/q2_k.h"
#include "kernels/cuda/tiled_products.cuh"

namespace sluice::kernels::cuda {
extern const TiledType tiled_q2_k = tiled_type<TiledQ2_K>();
}  // namespace sluice::kernels::cuda
