// What a device can do with the code that is loaded on it. Ways are chosen by this alone (linear.cu, attention.cu, sample.cu), so a build
// whose code is for 8.0 takes 8.0's ways on any device.
#pragma once
#include <cstddef>

namespace sluice::kernels::cuda {

struct Capability {
  int code;             // architecture that the loaded code is for: 80, 89, 90
  // Kernels that want 9.0: by wgmma, tensor maps and clusters; launched before the one ahead has ended; and products of codes, whose scales a
  // row and token the library has there alone.
  bool hopper;
  size_t shared_bytes;  // of a block, at most
};

// device: its capability, as 10 major + minor; code: what the loaded code was compiled for. A build's code for 9.0 is for 9.0 alone
// (hopper.cuh), so a later device has come by an earlier one's.
constexpr Capability capability(int device, int code, size_t shared_bytes) { return {code < device ? code : device, device == 90 && code == 90, shared_bytes}; }

// Of a block of products: what it keeps beside `fixed` bytes in shared memory, `wanted` at most.
constexpr size_t shared_left(const Capability& can, size_t fixed, size_t wanted) {
  const size_t left = can.shared_bytes > fixed ? can.shared_bytes - fixed : 0;
  return left < wanted ? left : wanted;
}

// Of a device of this machine, which becomes the thread's. code 0: this build has none that runs there. Asked once a device.
const Capability& capability_of(int device) noexcept;
// The architectures that this build has code for: "8.0, 8.9, 9.0".
const char* built_for() noexcept;

constexpr int kMaxDevices = 16;

}  // namespace sluice::kernels::cuda
