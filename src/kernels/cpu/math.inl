// Vector exp, silu, gelu, tanh and the RMS norm's factor.

// e^x: x = n ln 2 + r with |r| <= ln 2 / 2, Taylor polynomial of degree 7 (truncation 6e-9 relative; in all under 1.5 ulp),
// 2^n through the exponent bits. Below -87.3 it is 0, above 88.3 it stays at e^88.3. exp(0) is exactly 1.
SIMD F v_exp(F x) {
  const F lowest = f_set1(-87.3f);
  const F y = f_max(lowest, f_min(f_set1(88.3f), x));
  const F n = f_round(f_mul(y, f_set1(1.44269504f)));
  // ln 2 in two parts; the first has few bits, so that n times it is exact.
  const F r = f_fnma(n, f_set1(-2.12194440e-4f), f_fnma(n, f_set1(0.693359375f), y));
  F p = f_set1(1.0f / 5040);
  p = f_fma(p, r, f_set1(1.0f / 720));
  p = f_fma(p, r, f_set1(1.0f / 120));
  p = f_fma(p, r, f_set1(1.0f / 24));
  p = f_fma(p, r, f_set1(1.0f / 6));
  p = f_fma(p, r, f_set1(0.5f));
  p = f_fma(p, r, f_set1(1.0f));
  p = f_fma(p, r, f_set1(1.0f));
  const F power = f_from_bits(i_shift_left<23>(i_add(i_from_float(n), i_set1(127))));
  return f_if_less(x, lowest, f_zero(), f_mul(p, power));
}

SIMD F v_silu(F x) { return f_div(x, f_add(f_set1(1.0f), v_exp(f_sub(f_zero(), x)))); }

// gelu, tanh form: 0.5 x (1 + tanh u) = x / (1 + e^-2u), u = sqrt(2 / pi) (x + 0.044715 x^3).
SIMD F v_gelu(F x) {
  const F u = f_mul(x, f_fma(f_mul(x, x), f_set1(0.044715f), f_set1(1.0f)));
  return f_div(x, f_add(f_set1(1.0f), v_exp(f_mul(u, f_set1(-1.59576912f)))));
}

// tanh x = 1 - 2 / (e^2x + 1): absolute error of about 1e-7, which is what a score cap needs.
SIMD F v_tanh(F x) {
  const F e = v_exp(f_add(x, x));
  return f_sub(f_set1(1.0f), f_div(f_set1(2.0f), f_add(e, f_set1(1.0f))));
}

// 1 / sqrt(mean(x^2) + eps): two chains of lanes, then one tree.
static inline float rms_factor(const float* x, int n, float eps) {
  F s0 = f_zero(), s1 = f_zero();
  int k = 0;
  for (; k + 2 * kLanes <= n; k += 2 * kLanes) {
    const F a = f_load(x + k), b = f_load(x + k + kLanes);
    s0 = f_fma(a, a, s0);
    s1 = f_fma(b, b, s1);
  }
  for (; k < n; k += kLanes) {
    const F a = f_load_n(x + k, n - k);
    s0 = f_fma(a, a, s0);
  }
  return 1.0f / __builtin_sqrtf(f_sum(f_add(s0, s1)) / float(n) + eps);
}
