// The natural logarithm of a float, the same bits on every machine and device: additions, multiplications and a division,
// each rounded by itself, in one order. Within 2 units in the last place. For noise that must be equal everywhere.
// Compile without contraction of a * b + c (-ffp-contract=off, -fmad=false).
#pragma once
#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define SLUICE_BOTH __host__ __device__
#else
#define SLUICE_BOTH
#endif

namespace sluice {

// x is normal and above 0. x = 2^k * m with m in [sqrt(1/2), sqrt(2)); log m = 2 atanh(s), s = (m - 1) / (m + 1), by its series.
SLUICE_BOTH inline float portable_log(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  const uint32_t shifted = bits - 0x3F3504F3u;              // of sqrt(1/2)
  const int32_t k = int32_t(shifted) >> 23;
  bits = (shifted & 0x7FFFFFu) + 0x3F3504F3u;
  float m;
  memcpy(&m, &bits, 4);
  const float f = m - 1.0f, s = f / (2.0f + f), z = s * s;  // |s| < 0.172: the term after the last is below 2^-28
  float series = 1.0f / 9.0f;
  series = series * z + 1.0f / 7.0f;
  series = series * z + 1.0f / 5.0f;
  series = series * z + 1.0f / 3.0f;
  const float twice = s + s;
  // ln 2 in two parts: the first has few enough bits for k times it to be exact.
  return (float(k) * 1.9082149292705877e-10f + twice * z * series) + (twice + float(k) * 0.693147180369123816490f);
}

}  // namespace sluice
