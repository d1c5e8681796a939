// Choice of the instruction set by what the processor says it has.
#include <cpuid.h>
#include <string_view>

#include "kernels/abi.h"
#include "kernels/cpu/tables.h"

namespace sluice::kernels {
namespace {

// By cpuid itself (leaf 1, ECX bit 29): not every compiler's builtin knows F16C by name.
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) && (ecx >> 29 & 1);
}

bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c(); }

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}

}  // namespace

const KernelTable* cpu_kernels(const char* isa, const char** why) {
  const std::string_view wanted = isa ? isa : "";
  const char* reason = nullptr;
  const KernelTable* table = nullptr;
  if (wanted != "" && wanted != "avx2" && wanted != "avx512") {
    reason = "unknown instruction set (avx2, avx512)";
  } else if (wanted != "avx2" && has_avx512()) {
    table = &cpu::avx512_table;
  } else if (wanted == "avx512") {
    reason = "this processor lacks AVX-512 F, BW, DQ, VL or VNNI";
  } else if (has_avx2()) {
    table = &cpu::avx2_table;
  } else {
    reason = "this processor lacks AVX2, FMA or F16C";
  }
  if (why) *why = reason;
  return table;
}

}  // namespace sluice::kernels
