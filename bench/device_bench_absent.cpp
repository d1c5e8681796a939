#include <cstdio>

#include "bench/device_bench.h"

namespace sluice::bench {

int device_bench(int, char**) {
  std::fprintf(stderr, "kernels_bench: this build has no CUDA\n");
  return 1;
}

}  // namespace sluice::bench
