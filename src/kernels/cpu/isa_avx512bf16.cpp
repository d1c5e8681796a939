#include "kernels/cpu/isa.h"

namespace sluice::kernels::cpu {
namespace {
namespace avx512bf16 {
#include "kernels/cpu/simd_avx512.h"
#include "kernels/cpu/kernels.inl"
}  // namespace avx512bf16
}  // namespace

constinit const KernelTable avx512bf16_table = avx512bf16::make_table("avx512bf16");

}  // namespace sluice::kernels::cpu
