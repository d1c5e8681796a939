// Which code is being compiled. One source for all devices: what wants 9.0 stands under kHopper, and is empty elsewhere; the host never
// launches it there (capability.h).
#pragma once

namespace sluice::kernels::cuda {

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900 && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#error "wgmma is of 90a alone: name 90a-real, and 80-virtual for later devices"
#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
constexpr bool kHopper = false;
#else
constexpr bool kHopper = true;
#endif

}  // namespace sluice::kernels::cuda
