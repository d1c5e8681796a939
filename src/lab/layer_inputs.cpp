#include "lab/layer_inputs.h"

#include <cmath>
#include <cstring>

#include "base/portable_exp.h"

namespace sluice::lab {
namespace {

// Both of exp(-|x|), which cannot overflow, and in loops that become vectors.
float silu(float x) {
  const float e = portable_exp(x < 0 ? x : -x);
  return x * (x < 0 ? e : 1.0f) / (1.0f + e);
}
float gelu_tanh(float x) {
  const float u = 0.7978845608f * (x + 0.044715f * x * x * x);
  const float e = portable_exp(u < 0 ? 2 * u : -2 * u), tanh = (1.0f - e) / (1.0f + e);
  return 0.5f * x * (1.0f + (u < 0 ? -tanh : tanh));
}

}  // namespace

void norm_row(const float* x, const float* weight, float eps, int n, float* out) {
  double sum = 0;
  for (int k = 0; k < n; ++k) sum += double(x[k]) * x[k];
  const float inverse = float(1.0 / std::sqrt(sum / n + eps));
  for (int k = 0; k < n; ++k) out[k] = x[k] * inverse * weight[k];
}

void layer_input_row(const kernels::LinearArgs& a, int t, float* out) {
  const int cols = a.out[0].weight.cols;
  const float* x = a.x.floats() + size_t(t) * size_t(a.x_stride);
  const float* second = x + cols;
  switch (a.prologue) {
    case kernels::Prologue::kNone: std::memcpy(out, x, size_t(cols) * sizeof(float)); break;
    case kernels::Prologue::kRmsNorm: norm_row(x, a.norm_weight, a.eps, cols, out); break;
    case kernels::Prologue::kSiluMul:
      for (int k = 0; k < cols; ++k) out[k] = silu(x[k]) * second[k];
      break;
    case kernels::Prologue::kGeluMul:
      for (int k = 0; k < cols; ++k) out[k] = gelu_tanh(x[k]) * second[k];
      break;
  }
}

}  // namespace sluice::lab
