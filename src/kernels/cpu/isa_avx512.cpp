#include "kernels/cpu/isa.h"

namespace sluice::kernels::cpu {
namespace {
namespace avx512 {
#include "kernels/cpu/simd_avx512.h"
#include "kernels/cpu/kernels.inl"
}  // namespace avx512
}  // namespace

constinit const KernelTable avx512_table = avx512::make_table("avx512");

}  // namespace sluice::kernels::cpu
