// What this machine gives: memory read bandwidth and arithmetic ceilings, measured; the denominators of every roofline.
#pragma once
#include <string>

#include "kernels/abi.h"

namespace sluice::lab {

struct MachineCeilings {
  std::string cpu;                 // model name
  int threads = 0;
  double read_gb_s = 0;            // sequential reads of a buffer far beyond the caches, by all threads
  double read_gb_s_one = 0;        // by one
  double f32_gflop_s = 0;          // multiply-adds from registers, two operations each, by all threads
  double int8_gop_s = 0;           // 8-bit dot products from registers (VNNI where there is), two operations each
  double bf16_gflop_s = 0;         // of a device: a product of bfloat16 weights, 8,192 cubed
  double busy_fraction = 0;        // of the machine's cores, by others, while nothing of ours ran
  double compute_gflop_s() const { return bf16_gflop_s > 0 ? bf16_gflop_s : int8_gop_s; }
};

// A device's: copies within its memory, counting bytes read and written, and its product. Takes about half a second and 1 GB.
MachineCeilings measure_device(const kernels::KernelTable& table);

// buffer_bytes: size of what is read. Takes about two seconds.
MachineCeilings measure_machine(int threads, size_t buffer_bytes);

}  // namespace sluice::lab
