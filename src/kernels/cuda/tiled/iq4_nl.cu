#include "kernels/cuda/tiled/iq4_nl.h"
#include "kernels/cuda/tiled_products.cuh"

namespace sluice::kernels::cuda {
extern const TiledType tiled_iq4_nl = tiled_type<TiledIQ4_NL>();
}  // namespace sluice::kernels::cuda
