// Stands where the CUDA backend would, in builds without it.
#include "kernels/abi.h"

namespace sluice::kernels {

const KernelTable* cuda_kernels(int, const char** why) {
  if (why) *why = "this build has no CUDA backend (it is made with the preset `cuda`)";
  return nullptr;
}

}  // namespace sluice::kernels
