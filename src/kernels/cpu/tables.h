// The tables of the instruction sets built in; dispatch.cpp chooses.
#pragma once
#include "kernels/abi.h"

namespace sluice::kernels::cpu {

extern const KernelTable avx2_table;
extern const KernelTable avxvnni_table;
extern const KernelTable avx512_table;
extern const KernelTable avx512bf16_table;

}  // namespace sluice::kernels::cpu
