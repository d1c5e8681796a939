#include <immintrin.h>

#include "kernels/abi.h"
#include "kernels/context.h"
#include "kernels/cpu/layout.h"
#include "kernels/cpu/pack.h"
#include "kernels/cpu/tables.h"

namespace sluice::kernels::cpu {
namespace {
namespace avx2 {
#include "kernels/cpu/simd_avx2.h"
// The vectors first: everything below is written in them.
#include "kernels/cpu/math.inl"
#include "kernels/cpu/inputs.inl"
#include "kernels/cpu/tiles.inl"
#include "kernels/cpu/linear.inl"
#include "kernels/cpu/rows.inl"
#include "kernels/cpu/attention_tile.inl"
#include "kernels/cpu/attention.inl"
#include "kernels/cpu/table.inl"
}  // namespace avx2
}  // namespace

constinit const KernelTable avx2_table = avx2::make_table("avx2");

}  // namespace sluice::kernels::cpu
