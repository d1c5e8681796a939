#include "kernels/cpu/isa.h"

namespace sluice::kernels::cpu {
namespace {
namespace avxvnni {
#include "kernels/cpu/simd_avx2.h"
#include "kernels/cpu/kernels.inl"
}  // namespace avxvnni
}  // namespace

constinit const KernelTable avxvnni_table = avxvnni::make_table("avxvnni");

}  // namespace sluice::kernels::cpu
