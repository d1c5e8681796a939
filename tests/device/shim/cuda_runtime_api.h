// What kernels' sources want of the CUDA runtime, for a host without it (tests/device/emulator.h).
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "tests/device/emulator.h"

#define __global__
#define __device__
#define __host__
#define __grid_constant__
#define __launch_bounds__(...)

using cudaStream_t = void*;
using cudaEvent_t = void*;
enum cudaError_t { cudaSuccess, cudaErrorUnknown };
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct float2 { float x, y; };
struct float4 { float x, y, z, w; };
struct uint4 { uint32_t x, y, z, w; };
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }

// Launches, as far as hosts ask about them.
enum { cudaLaunchAttributeClusterDimension, cudaFuncAttributeMaxDynamicSharedMemorySize };
struct cudaLaunchAttribute {
  int id;
  struct { dim3 clusterDim; } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};
template <class Kernel> cudaError_t cudaFuncSetAttribute(Kernel, int, int) { return cudaSuccess; }
// Few, so that each has several tiles.
template <class Kernel>
cudaError_t cudaOccupancyMaxActiveClusters(int* n, Kernel, const cudaLaunchConfig_t*) { return *n = 3, cudaSuccess; }

namespace sluice::kernels::cuda {

struct Index {
  int (*of)();
  operator int() const { return of(); }
};
inline constexpr struct { Index x{[] { return emulator::place().thread; }}; } threadIdx;
inline constexpr struct { Index x{[] { return emulator::place().block; }}; } blockIdx;
inline constexpr struct { Index x{[] { return emulator::place().blocks; }}; } gridDim;

template <class T> T __ldcg(const T* p) { return *p; }
inline float __expf(float v) { return std::exp(v); }
inline float __fdividef(float a, float b) { return a / b; }
inline void __syncthreads() { emulator::meet_block(); }
inline void __syncwarp() { emulator::meet_warp(); }
inline uint32_t __shfl_xor_sync(uint32_t, uint32_t v, int bits) { return emulator::shuffle_xor(v, bits); }
constexpr int min(int a, int b) { return a < b ? a : b; }

}  // namespace sluice::kernels::cuda
