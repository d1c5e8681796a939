#include "kernels/cuda/tiled/iq4_xs.h"
#include "kernels/cuda/tiled_products.cuh"

namespace sluice::kernels::cuda {
extern const TiledType tiled_iq4_xs = tiled_type<TiledIQ4_XS>();
}  // namespace sluice::kernels::cuda
