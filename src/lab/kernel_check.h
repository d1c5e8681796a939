// The conformance list: every operation of a KernelTable as cases that know what is right, how far a result may be off and why,
// and how fast the operation is. Run as correctness by the tests and by `sluice bench kernels --check`, as speed by
// `sluice bench kernels`, on every backend alike. One file of checks/ is one operation.
// Threads: a case uses one context at a time; cases may run one after the other only.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "kernels/abi.h"

namespace sluice::lab {

// What a case found. `error` is the largest difference in units of what is allowed: at most 1 passes.
struct Verdict {
  double error = 0;
  std::string fault;  // sentinels overwritten, a device fault, wrong bits: where
  bool passed() const { return fault.empty() && error <= 1; }
};

struct KernelCase {
  std::string name;   // "q4_0 T=5 N=23 K=64"
  std::function<Verdict(const kernels::KernelTable&)> check;
};

// One way to call an operation, data in place, for a clock. Calls are enqueued; the caller synchronises.
struct SpeedRun {
  double bytes = 0, flops = 0;  // read and written at least; multiply and add counted apart
  std::function<void()> call;
};
struct SpeedCase {
  std::string name;
  bool cold = false;            // goes through more memory than caches hold
  // An empty call: the backend has no such kernel.
  std::function<SpeedRun(const kernels::KernelTable&, kernels::Context*)> prepare;
};

struct KernelCheck {
  const char* name;             // "linear"
  const char* tolerance;        // what is allowed, and the reason
  std::vector<KernelCase> (*cases)();
  std::vector<SpeedCase> (*speeds)();  // or null
};

std::span<const KernelCheck* const> checks_table();

// Runs a case; what it throws becomes the verdict's fault.
Verdict run_case(const KernelCase& c, const kernels::KernelTable& table);

struct KernelSpeed {
  std::string name;
  double us = 0, gb_s = 0, gflop_s = 0;  // median of repeats
  double us_min = 0, us_max = 0;
};
// Speeds of the checks whose name holds `filter`, on `threads` workers.
std::vector<KernelSpeed> kernel_speeds(const kernels::KernelTable& table, int threads, const std::string& filter, int repeats);

}  // namespace sluice::lab
