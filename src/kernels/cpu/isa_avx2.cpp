#include "kernels/cpu/isa.h"

namespace sluice::kernels::cpu {
namespace {
namespace avx2 {
#include "kernels/cpu/simd_avx2.h"
#include "kernels/cpu/kernels.inl"
}  // namespace avx2
}  // namespace

constinit const KernelTable avx2_table = avx2::make_table("avx2");

}  // namespace sluice::kernels::cpu
