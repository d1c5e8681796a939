// The natural logarithm and exponential of a float, the same bits on every machine and device: additions, multiplications and
// a division, each rounded by itself, in one order. Within 2 units in the last place. For samples that must be equal everywhere.
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

// ln 2 in two parts: the first has few enough bits for an exponent times it to be exact.
constexpr float kLn2Upper = 0x1.62e3p-1f, kLn2Lower = 9.05800061445916e-6f;

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
  return (float(k) * kLn2Lower + twice * z * series) + (twice + float(k) * kLn2Upper);
}

// x is at most 0; 0 below -87, and of a NaN. x = k ln 2 + r with |r| <= ln 2 / 2; exp r by its series.
SLUICE_BOTH inline float portable_exp(float x) {
  if (!(x > -87.0f)) return 0;
  const int32_t k = int32_t(x * 1.44269504f - 0.5f);        // towards 0, which is up
  const float r = (x - float(k) * kLn2Upper) - float(k) * kLn2Lower;
  float series = 1.0f / 5040.0f;
  series = series * r + 1.0f / 720.0f;
  series = series * r + 1.0f / 120.0f;
  series = series * r + 1.0f / 24.0f;
  series = series * r + 1.0f / 6.0f;
  series = series * r + 0.5f;
  series = series * r + 1.0f;
  series = series * r + 1.0f;
  const uint32_t bits = uint32_t(k + 127) << 23;
  float power;
  memcpy(&power, &bits, 4);
  return series * power;
}

}  // namespace sluice
