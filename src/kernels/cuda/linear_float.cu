// Products in float32 and tf32 (linear_float.cuh) of the types whose rows lie as the file has them, and of fp8.
#include "kernels/cuda/decode.cuh"
#include "kernels/cuda/linear_float.cuh"
#include "kernels/cuda/tiled.h"

namespace sluice::kernels::cuda {
namespace {

template <WeightType type>
struct FileRows {
  __device__ static void eight(const Output& o, int n, int k, int cols, bool whole, float w[8]) { decode8<type>(o.weight + size_t(n) * o.row_bytes, k, cols, whole, w); }
};
// Of any unit.
struct Fp8Rows {
  __device__ static void eight(const Output& o, int n, int k, int cols, bool, float w[8]) {
    fp8_eight(reinterpret_cast<const uint32_t*>(o.weight + size_t(n) * cols + k), o.scales[size_t(n) * (cols / o.scale_cols) + k / o.scale_cols], w);
  }
};

// The grid's z is an output and a part of its tile: a thread an element, so that few tiles still fill the device.
__global__ void __launch_bounds__(kTileThreads) finish_kernel(const __grid_constant__ Product p, int slices, const float* parts) {
  const int which = blockIdx.z / kFinishBlocks, outputs = gridDim.z / kFinishBlocks;
  const Output& o = p.out[which];
  const int i = blockIdx.z % kFinishBlocks * kTileThreads + threadIdx.x;
  const int t = blockIdx.y * kTile + i / kTile, n = blockIdx.x * kTile + i % kTile;
  if (t >= p.tokens || n >= o.rows) return;
  const size_t step = size_t(outputs) * gridDim.y * gridDim.x * kPartFloats;
  const float* from = parts + ((size_t(which) * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x) * kPartFloats + i;
  float v = 0;
#pragma unroll 4
  for (int s = 0; s < slices; ++s) v += from[s * step];
  store(o, t, n, v);
}

}  // namespace

void finish_slices(CudaContext* c, const Product& p, dim3 grid, int slices) noexcept {
  launch(c, dim3(grid.x, grid.y, grid.z * kFinishBlocks), kTileThreads, finish_kernel, p, slices, c->parts);
}

FloatProducts float_products(WeightType type) noexcept {
  if (const TiledType* t = find_tiled(type)) return t->floats;
  switch (type) {
    case WeightType::kF32: return float_products_of<FileRows<WeightType::kF32>>();
    case WeightType::kF16: return float_products_of<FileRows<WeightType::kF16>>();
    case WeightType::kBF16: return float_products_of<FileRows<WeightType::kBF16>>();
    default: return float_products_of<Fp8Rows>();
  }
}

}  // namespace sluice::kernels::cuda
