// `sluice bench kernels`: the conformance list as speed, or with --check as correctness.
#pragma once
#include <string>

#include "base/result.h"

namespace sluice::apps {

struct KernelBenchOptions {
  std::string device = "cpu", isa, filter;  // isa "": with check every instruction set, else the best
  int threads = 1, repeats = 5;
  bool check = false, json = false;
};
// Exit status: 1 where a case fails.
Result<int> bench_kernels(const KernelBenchOptions& options);

}  // namespace sluice::apps
