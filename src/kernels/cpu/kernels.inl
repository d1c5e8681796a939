// All kernels of one instruction set, in the namespace that the including file has opened after its vectors (simd_*.h), in which
// everything here is written.
#include "kernels/cpu/math.inl"
#include "kernels/cpu/inputs.inl"
#include "kernels/cpu/tiles.inl"
#include "kernels/cpu/linear.inl"
#include "kernels/cpu/cache.inl"
#include "kernels/cpu/key_groups.inl"
#include "kernels/cpu/rows.inl"
#include "kernels/cpu/attention_tile.inl"
#include "kernels/cpu/attention_keys.inl"
#include "kernels/cpu/attention_values.inl"
#include "kernels/cpu/attention.inl"
namespace sampling {
using namespace sample;
#include "sample/scan.inl"
}  // namespace sampling
#include "kernels/cpu/table.inl"
