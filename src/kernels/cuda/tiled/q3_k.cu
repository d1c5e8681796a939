#include "kernels/cuda/tiled/q3_k.h"
#include "kernels/cuda/tiled_products.cuh"

namespace sluice::kernels::cuda {
extern const TiledType tiled_q3_k = tiled_type<TiledQ3_K>();
}  // namespace sluice::kernels::cuda
