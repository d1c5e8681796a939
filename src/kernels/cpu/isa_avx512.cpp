// GCC 12 warns of its own headers' deliberately undefined vectors (its bug 105593).
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#include <immintrin.h>

#include "kernels/abi.h"
#include "kernels/context.h"
#include "kernels/cpu/layout.h"
#include "kernels/cpu/pack.h"
#include "kernels/cpu/tables.h"

namespace sluice::kernels::cpu {
namespace {
namespace avx512 {
#include "kernels/cpu/simd_avx512.h"
// The vectors first: everything below is written in them.
#include "kernels/cpu/math.inl"
#include "kernels/cpu/inputs.inl"
#include "kernels/cpu/tiles.inl"
#include "kernels/cpu/linear.inl"
#include "kernels/cpu/rows.inl"
#include "kernels/cpu/attention_tile.inl"
#include "kernels/cpu/attention.inl"
#include "kernels/cpu/table.inl"
}  // namespace avx512
}  // namespace

constinit const KernelTable avx512_table = avx512::make_table("avx512");

}  // namespace sluice::kernels::cpu
