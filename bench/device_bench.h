// Speed of a device's kernels; the other half is for builds without one.
#pragma once

namespace sluice::bench {

// The exit status. arguments: what follows `--device cuda`: words of part names to run only those.
int device_bench(int argc, char** argv);

}  // namespace sluice::bench
