// Sums over a warp and a block, folded in one order.
#pragma once

namespace sluice::kernels::cuda {

template <class T>
__device__ inline T warp_sum(T v) {
#pragma unroll
  for (int step = 16; step; step /= 2) v += __shfl_xor_sync(0xFFFFFFFFu, v, step);
  return v;
}

// Of a block of whole warps, at most 32; every thread gets the sum. May be called again at once.
template <class T>
__device__ inline T block_sum(T v) {
  __shared__ T parts[32];
  v = warp_sum(v);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = v;
  __syncthreads();
  T sum = 0;
  for (int i = 0; i < int(blockDim.x / 32); ++i) sum += parts[i];
  __syncthreads();
  return sum;
}

}  // namespace sluice::kernels::cuda
