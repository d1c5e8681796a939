#include "kernels/cuda/tiled.h"

#include <array>

namespace sluice::kernels::cuda {

const TiledType* find_tiled(WeightType type) noexcept {
  static const auto by_type = [] {
    std::array<const TiledType*, 256> all{};
    for (const TiledType* t : tiled_table()) all[size_t(t->type)] = t;
    return all;
  }();
  return by_type[size_t(type)];
}

}  // namespace sluice::kernels::cuda
