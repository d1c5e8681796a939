// All that a tiled type's file makes of its struct (tiled_codes.h).
#pragma once
#include "kernels/cuda/linear_float.cuh"
#include "kernels/cuda/linear_quant.cuh"
#include "kernels/cuda/linear_quant_many.cuh"
#include "kernels/cuda/tiled.h"
#include "kernels/cuda/tiled_pack.h"

namespace sluice::kernels::cuda {

template <class T>
struct TiledRows {
  __device__ static void eight(const Output& o, int n, int k, int cols, bool, float w[8]) { tiled8<T>(o.weight, cols, n, k, w); }
};

template <class T>
constexpr TiledType tiled_type() {
  return {T::kType, kUnitBytes<T>, pack_tiles<T>, multiply_quant<T>, quant_passes<T>, multiply_quant_many<T>, expand_tiles<T>, float_products_of<TiledRows<T>>()};
}

}  // namespace sluice::kernels::cuda
