#include "sample/scan.h"

#include <emmintrin.h>

#include "sample/noise.h"
#include "sample/token_mass.h"

namespace sluice::sample {
namespace {
#include "sample/scan.inl"
}  // namespace

const Scan plain_scan = kScan;

}  // namespace sluice::sample
