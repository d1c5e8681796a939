// Mass of a token in truncation: exp(x - max) as an integer, so that sums do not depend on their order. The same bits on every
// machine and device; 2^20 tokens of the largest logit do not overflow. A NaN weighs nothing.
#pragma once
#include "base/portable_exp.h"

namespace sluice::sample {

constexpr double kMassUnits = 0x1p44;  // the mass of the largest logit

SLUICE_BOTH inline uint64_t token_mass(float x, float max) {
  const double rounded = double(portable_exp(x - max)) * kMassUnits + 0x1p52;  // adding 2^52 rounds to an integer
  uint64_t bits;
  memcpy(&bits, &rounded, 8);
  return bits - 0x4330000000000000ull;
}

}  // namespace sluice::sample
