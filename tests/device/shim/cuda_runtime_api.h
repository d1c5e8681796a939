// The CUDA runtime for a host without it, and what the language has beside C++, as far as kernels/cuda uses them: kernels run on the emulator when they are launched, and
// everything is done by the time that a call returns. __CUDA_ARCH__ says, as for the device's compiler, which code is compiled; without it, it is 9.0's.
#pragma once
#include <math.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <iterator>
#include <map>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "tests/device/emulator.h"

#define __global__
#define __device__
#define __host__
#define __shared__ static  // blocks run one after another
#define __align__(n) __attribute__((aligned(n)))
#define __grid_constant__
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __cluster_dims__(...)

using dim3 = sluice::emulator::Index;
using uint3 = sluice::emulator::Index;
struct alignas(8) uint2 { uint32_t x, y; };
struct alignas(16) uint4 { uint32_t x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
inline uint2 make_uint2(uint32_t x, uint32_t y) { return {x, y}; }
inline uint4 make_uint4(uint32_t x, uint32_t y, uint32_t z, uint32_t w) { return {x, y, z, w}; }
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

inline constexpr const dim3& threadIdx = sluice::emulator::place.thread;
inline constexpr const dim3& blockIdx = sluice::emulator::place.block;
inline constexpr const dim3& blockDim = sluice::emulator::place.threads;
inline constexpr const dim3& gridDim = sluice::emulator::place.blocks;

// Of a block and a warp.
inline void __syncthreads() { sluice::emulator::meet_block(); }
inline void __syncwarp(uint32_t lanes = ~0u) { sluice::emulator::meet_warp(lanes); }
inline int emulated_lane() { return int(threadIdx.x % 32); }
template <class T>
T emulated_told(const uint8_t* told, int lane) {
  T v;
  std::memcpy(&v, told + size_t(lane) * sluice::emulator::kMostTold, sizeof v);
  return v;
}
template <class T>
T __shfl_sync(uint32_t lanes, T v, int lane) {
  if (!(lanes >> (lane & 31) & 1)) throw std::runtime_error("a lane that is not among those that meet");
  return emulated_told<T>(sluice::emulator::tell(lanes, v), lane & 31);
}
template <class T> T __shfl_xor_sync(uint32_t lanes, T v, int bits) { return __shfl_sync(lanes, v, emulated_lane() ^ bits); }
template <class T> T __shfl_up_sync(uint32_t lanes, T v, int by) { return __shfl_sync(lanes, v, emulated_lane() >= by ? emulated_lane() - by : emulated_lane()); }
template <class T, class Fold>
T emulated_fold(uint32_t lanes, T v, T folded, Fold fold) {
  const uint8_t* told = sluice::emulator::tell(lanes, v);
  for (int i = 0; i < 32; ++i)
    if (lanes >> i & 1) folded = fold(folded, emulated_told<T>(told, i));
  return folded;
}
inline uint32_t __reduce_or_sync(uint32_t lanes, uint32_t v) { return emulated_fold(lanes, v, 0u, [](uint32_t a, uint32_t b) { return a | b; }); }
inline uint32_t __reduce_max_sync(uint32_t lanes, uint32_t v) { return emulated_fold(lanes, v, 0u, [](uint32_t a, uint32_t b) { return std::max(a, b); }); }
inline uint32_t __ballot_sync(uint32_t lanes, bool v) { return __reduce_or_sync(lanes, uint32_t(v) << emulated_lane()); }
inline int __any_sync(uint32_t lanes, bool v) { return __ballot_sync(lanes, v) != 0; }

// Memory.
template <class T>
T __ldcg(const T* p) {
  if (reinterpret_cast<uintptr_t>(p) % sizeof(T) != 0) throw std::runtime_error("a load that is not aligned");
  return *p;
}
template <class T> T __ldg(const T* p) { return __ldcg(p); }
inline void __threadfence() {}
template <class T, class U>
T atomicAdd(T* p, U v) {
  const T before = *p;
  *p = before + T(v);
  return before;
}
inline unsigned atomicOr(unsigned* p, unsigned v) {
  const unsigned before = *p;
  *p = before | v;
  return before;
}

// Arithmetic.
template <class A, class B> constexpr std::common_type_t<A, B> max(A a, B b) { return std::max<std::common_type_t<A, B>>(a, b); }
template <class A, class B> constexpr std::common_type_t<A, B> min(A a, B b) { return std::min<std::common_type_t<A, B>>(a, b); }
inline float __uint_as_float(uint32_t v) { return std::bit_cast<float>(v); }
inline uint32_t __float_as_uint(float v) { return std::bit_cast<uint32_t>(v); }
inline uint32_t __byte_perm(uint32_t a, uint32_t b, uint32_t s) {
  uint32_t v = 0;
  for (int i = 0; i < 4; ++i) v |= uint32_t((uint64_t{b} << 32 | a) >> 8 * (s >> 4 * i & 7) & 255) << 8 * i;
  return v;
}
inline uint32_t __umulhi(uint32_t a, uint32_t b) { return uint32_t(uint64_t{a} * b >> 32); }
inline int __clz(int v) { return std::countl_zero(unsigned(v)); }
inline int __ffs(int v) { return v ? std::countr_zero(unsigned(v)) + 1 : 0; }
inline int __float2int_rn(float v) { return int(std::nearbyint(v)); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsub_rn(float a, float b) { return a - b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float v) { return 1 / v; }
inline float __fsqrt_rn(float v) { return std::sqrt(v); }
inline float __fdividef(float a, float b) { return a / b; }
inline float __expf(float v) { return std::exp(v); }
inline float __log2f(float v) { return std::log2(v); }
inline float rsqrtf(float v) { return 1 / std::sqrt(v); }

// Errors and devices.
enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorNotSupported = 801,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
  cudaErrorUnknown = 999
};
namespace sluice::emulator {

struct Device {
  int capability, shared, processors;
};
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
inline constexpr Device kDevices[] = {{80, 163 * 1024, 108}, {89, 99 * 1024, 24}};
#else
inline constexpr Device kDevices[] = {{90, 227 * 1024, 132}};
#endif
inline int device = 0;
inline cudaError_t last_error = cudaSuccess;
inline uint64_t launch_seed = 1;             // of the next launch; the test's, as what the kernel ahead does
inline std::function<void()> ahead_ends;
inline std::map<const void*, int> shared_asked_for;

inline cudaError_t note(cudaError_t e) {
  if (e != cudaSuccess) last_error = e;
  return e;
}
inline cudaError_t refuse(const std::string& why) {
  std::fprintf(stderr, "device %d, seed %llu: %s\n", device, static_cast<unsigned long long>(launch_seed), why.c_str());
  return note(cudaErrorInvalidValue);
}
inline int most_shared(const void* kernel) {
  const auto asked = shared_asked_for.find(kernel);
  return asked == shared_asked_for.end() ? 48 * 1024 : std::max(48 * 1024, asked->second);
}

}  // namespace sluice::emulator

inline cudaError_t cudaGetLastError() { return std::exchange(sluice::emulator::last_error, cudaSuccess); }
inline const char* cudaGetErrorName(cudaError_t) { return "error"; }
inline const char* cudaGetErrorString(cudaError_t) { return "of the emulator, which says more on stderr"; }
inline cudaError_t cudaGetDeviceCount(int* n) { return *n = int(std::size(sluice::emulator::kDevices)), cudaSuccess; }
inline cudaError_t cudaSetDevice(int device) {
  if (device < 0 || device >= int(std::size(sluice::emulator::kDevices))) return sluice::emulator::refuse("no such device");
  sluice::emulator::device = device;
  return cudaSuccess;
}
enum cudaDeviceAttr { cudaDevAttrComputeCapabilityMajor, cudaDevAttrComputeCapabilityMinor, cudaDevAttrMaxSharedMemoryPerBlockOptin, cudaDevAttrMultiProcessorCount };
inline cudaError_t cudaDeviceGetAttribute(int* v, cudaDeviceAttr what, int device) {
  const sluice::emulator::Device& d = sluice::emulator::kDevices[device];
  const int values[] = {d.capability / 10, d.capability % 10, d.shared, d.processors};
  return *v = values[what], cudaSuccess;
}

// Kernels.
struct cudaFuncAttributes { int ptxVersion; };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
template <class Kernel>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, Kernel) {
#ifdef __CUDA_ARCH__
  a->ptxVersion = __CUDA_ARCH__ / 10;
#else
  a->ptxVersion = 90;
#endif
  return cudaSuccess;
}
template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel kernel, cudaFuncAttribute, int bytes) {
  using namespace sluice::emulator;
  if (bytes < 0 || bytes > kDevices[device].shared) return refuse("more shared memory than the device has: " + std::to_string(bytes));
  shared_asked_for[reinterpret_cast<const void*>(kernel)] = bytes;
  return cudaSuccess;
}
template <class Kernel> cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* n, Kernel, int, size_t) { return *n = 2, cudaSuccess; }

enum cudaLaunchAttributeID { cudaLaunchAttributeProgrammaticStreamSerialization, cudaLaunchAttributePreferredSharedMemoryCarveout, cudaLaunchAttributeClusterDimension };
constexpr unsigned cudaSharedmemCarveoutMaxShared = 100;
using cudaStream_t = struct EmulatedStream*;
struct cudaLaunchAttribute {
  cudaLaunchAttributeID id;
  struct {
    int programmaticStreamSerializationAllowed;
    unsigned sharedMemCarveout;
    dim3 clusterDim;
  } val;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
  cudaLaunchAttribute* attrs;
  unsigned numAttrs;
};
// Few, so that each has several tiles.
template <class Kernel> cudaError_t cudaOccupancyMaxActiveClusters(int* n, Kernel, const cudaLaunchConfig_t*) { return *n = 3, cudaSuccess; }
template <class... Params>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* c, void (*kernel)(Params...), Params... args) {
  using namespace sluice::emulator;
  const dim3 g = c->gridDim;
  if (g.x == 0 || g.y == 0 || g.z == 0 || g.x > 0x7FFFFFFFu || g.y > 65535 || g.z > 65535)
    return refuse("a grid of " + std::to_string(g.x) + " x " + std::to_string(g.y) + " x " + std::to_string(g.z));
  if (c->blockDim.x == 0 || c->blockDim.x > 1024) return refuse("blocks of " + std::to_string(c->blockDim.x));
  if (c->dynamicSmemBytes > size_t(most_shared(reinterpret_cast<const void*>(kernel)))) return refuse("shared memory that was not asked for: " + std::to_string(c->dynamicSmemBytes));
  if (c->numAttrs && kDevices[device].capability < 90) return refuse("attributes of a launch below 9.0");
  int cluster = 1;
  for (unsigned i = 0; i < c->numAttrs; ++i)
    if (c->attrs[i].id == cudaLaunchAttributeClusterDimension) cluster = int(c->attrs[i].val.clusterDim.x);
  try {
    run({g, cluster, int(c->blockDim.x), c->dynamicSmemBytes, launch_seed, ahead_ends}, [&] { kernel(args...); });
  } catch (const std::exception& e) {
    return refuse(e.what());
  }
  return cudaSuccess;
}

// Memory is the host's.
inline cudaError_t cudaMalloc(void** p, size_t bytes) { return posix_memalign(p, 256, bytes) == 0 ? cudaSuccess : cudaErrorMemoryAllocation; }
inline cudaError_t cudaFree(void* p) { return std::free(p), cudaSuccess; }
inline cudaError_t cudaMallocHost(void** p, size_t bytes) { return cudaMalloc(p, bytes); }
inline cudaError_t cudaFreeHost(void* p) { return cudaFree(p); }
inline cudaError_t cudaMemGetInfo(size_t* free, size_t* total) { return *free = *total = size_t{8} << 30, cudaSuccess; }
enum cudaMemcpyKind { cudaMemcpyDefault, cudaMemcpyHostToDevice, cudaMemcpyDeviceToHost };
inline cudaError_t cudaMemset(void* p, int v, size_t bytes) { return std::memset(p, v, bytes), cudaSuccess; }
inline cudaError_t cudaMemsetAsync(void* p, int v, size_t bytes, cudaStream_t) { return cudaMemset(p, v, bytes); }
inline cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) { return std::memcpy(to, from, bytes), cudaSuccess; }
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t) { return cudaMemcpy(to, from, bytes, kind); }

// Streams have nothing to wait for.
using cudaEvent_t = struct EmulatedEvent*;
enum { cudaStreamNonBlocking = 1, cudaEventDisableTiming = 2 };
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned) { return *s = nullptr, cudaSuccess; }
inline cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamWaitEvent(cudaStream_t, cudaEvent_t, unsigned) { return cudaSuccess; }
inline cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned) { return *e = nullptr, cudaSuccess; }
inline cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }

// Nothing can be recorded: whoever asks launches every kernel.
using cudaGraph_t = struct EmulatedGraph*;
using cudaGraphExec_t = struct EmulatedGraphExec*;
enum cudaStreamCaptureMode { cudaStreamCaptureModeThreadLocal };
inline cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) { return cudaErrorNotSupported; }
inline cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t*) { return cudaErrorNotSupported; }
inline cudaError_t cudaGraphInstantiate(cudaGraphExec_t*, cudaGraph_t, unsigned) { return cudaErrorNotSupported; }
inline cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaErrorNotSupported; }
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return cudaErrorNotSupported; }
inline cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }
