#include "kernels/cuda/capability.h"

#include <cuda_runtime.h>

#include <algorithm>
#include <iterator>
#include <mutex>
#include <string>

namespace sluice::kernels::cuda {
namespace {

constexpr int kBuiltFor[] = {__CUDA_ARCH_LIST__};  // ten times what devices' capabilities are here

// Stands for all kernels of the build: which of its code a device has loaded.
__global__ void stand_in_kernel() {}

// No more than devices of the code's own architecture have: on a later one it goes their ways, and its checks there are worth something.
size_t shared_of(int code) {
  constexpr size_t kKb = 1024;
  return code >= 90 ? 227 * kKb : code == 89 ? 99 * kKb : 163 * kKb;
}

Capability ask(int device) {
  int major = 0, minor = 0, shared = 0;
  cudaFuncAttributes loaded{};
  if (cudaSetDevice(device) != cudaSuccess) return cudaGetLastError(), Capability{};
  const bool known = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
                     cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess &&
                     cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) == cudaSuccess &&
                     cudaFuncGetAttributes(&loaded, stand_in_kernel) == cudaSuccess;
  cudaGetLastError();  // having no code for a device is reported here, not by the next call
  if (!known) return {};
  const int is = 10 * major + minor;
  const int code = std::size(kBuiltFor) == 1 && kBuiltFor[0] == 10 * is ? is : loaded.ptxVersion;  // there is no other
  return capability(is, code, std::min(size_t(shared), shared_of(code)));
}

}  // namespace

const Capability& capability_of(int device) noexcept {
  static std::mutex mutex;
  static Capability known[kMaxDevices];
  static const Capability none{};
  if (device < 0 || device >= kMaxDevices) return none;
  const std::lock_guard lock(mutex);
  if (!known[device].code) known[device] = ask(device);
  return known[device];
}

const char* built_for() noexcept {
  static const std::string text = [] {
    std::string s;
    for (const int arch : kBuiltFor) s += (s.empty() ? "" : ", ") + std::to_string(arch / 100) + "." + std::to_string(arch / 10 % 10);
    return s;
  }();
  return text.c_str();
}

}  // namespace sluice::kernels::cuda
