// Choice of the instruction set by what the processor says it has.
#include <cpuid.h>
#include <string_view>

#include "kernels/abi.h"
#include "kernels/cpu/tables.h"

namespace sluice::kernels {
namespace {

// A bit of cpuid: not every compiler's builtin knows all of these by name.
bool has_bit(unsigned leaf, unsigned subleaf, unsigned reg, unsigned bit) {
  unsigned r[4] = {};
  return __get_cpuid_count(leaf, subleaf, &r[0], &r[1], &r[2], &r[3]) && (r[reg] >> bit & 1);
}
constexpr unsigned kEax = 0, kEcx = 2;

bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_bit(1, 0, kEcx, 29); }
bool has_avxvnni() { return has_avx2() && has_bit(7, 1, kEax, 4); }
bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}
bool has_avx512bf16() { return has_avx512() && has_bit(7, 1, kEax, 5); }

// The plainest first.
struct Isa {
  const KernelTable* table;
  bool (*here)();
  const char* lacks;
};
constexpr Isa kIsas[] = {
    {&cpu::avx2_table, has_avx2, "this processor lacks AVX2, FMA or F16C"},
    {&cpu::avxvnni_table, has_avxvnni, "this processor lacks AVX-VNNI"},
    {&cpu::avx512_table, has_avx512, "this processor lacks AVX-512 F, BW, DQ, VL or VNNI"},
    {&cpu::avx512bf16_table, has_avx512bf16, "this processor lacks AVX-512 BF16 or what it builds on"},
};

}  // namespace

const KernelTable* cpu_kernels(const char* isa, const char** why) {
  const std::string_view wanted = isa ? isa : "";
  const char* reason = wanted == "" ? kIsas[0].lacks : "unknown instruction set (avx2, avxvnni, avx512, avx512bf16)";
  const KernelTable* best = nullptr;
  for (const Isa& i : kIsas) {
    if (wanted != "" && wanted != i.table->name) continue;
    if (i.here()) best = i.table;
    else if (wanted != "") reason = i.lacks;
  }
  if (why) *why = best ? nullptr : reason;
  return best;
}

}  // namespace sluice::kernels
