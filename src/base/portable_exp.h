// exp of a float that is not above 0, the same bits on every machine and device, in the way of portable_log.h. Within 2 units
// in the last place; what is below exp(-60) gives exp(-60), and so does a NaN. Written without branches, for loops that a
// compiler turns into vectors.
#pragma once
#include "base/portable_log.h"

namespace sluice {

// x = n ln 2 + r with |r| <= ln 2 / 2; exp(r) by its series: the term after the last is below 2^-22 of it.
SLUICE_BOTH inline float portable_exp(float x) {
  constexpr float kMagic = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer, which then stands in the lowest bits
  x = x > -60.0f ? x : -60.0f;
  const float shifted = x * 1.44269504088896341f + kMagic, n = shifted - kMagic;
  const float r = (x - n * 0.693145751953125f) - n * 1.42860682030941723e-6f;  // ln 2 in two parts, n times the first is exact
  float e = 1.0f / 720.0f;
  e = e * r + 1.0f / 120.0f;
  e = e * r + 1.0f / 24.0f;
  e = e * r + 1.0f / 6.0f;
  e = e * r + 0.5f;
  e = e * r + 1.0f;
  e = e * r + 1.0f;
  int32_t bits, power;
  memcpy(&bits, &e, 4);
  memcpy(&power, &shifted, 4);
  bits += int32_t(uint32_t(power) << 23);
  memcpy(&e, &bits, 4);
  return e;
}

}  // namespace sluice
