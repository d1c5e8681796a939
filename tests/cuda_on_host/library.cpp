// kernels/cuda/library.h by plain code: what devices below 9.0 ask of the library.
#include "kernels/cuda/library.h"

#include <vector>

#include "base/half.h"
#include "base/result.h"
#include "kernels/cuda/products.h"

namespace sluice::kernels::cuda {
namespace {

float to_float(DType type, const void* data, size_t i) {
  if (type == DType::kF32) return static_cast<const float*>(data)[i];
  const uint16_t v = static_cast<const uint16_t*>(data)[i];
  return type == DType::kF16 ? half_to_float(v) : bf16_to_float(v);
}
void store(DType type, void* data, size_t i, float v) {
  if (type == DType::kF32) static_cast<float*>(data)[i] = v;
  else static_cast<uint16_t*>(data)[i] = type == DType::kF16 ? float_to_half(v) : float_to_bf16(v);
}

}  // namespace

struct Library::State {};
Library::Library(std::unique_ptr<State> state) : state_(std::move(state)) {}
Library::~Library() = default;
std::unique_ptr<Library> Library::open() { return std::unique_ptr<Library>(new Library(nullptr)); }

cudaError_t Library::multiply(cudaStream_t, WeightType type, const void* x, int x_stride, int tokens, int cols, const Output& o) noexcept {
  const DType half = type == WeightType::kF16 ? DType::kF16 : DType::kBF16;
  SLUICE_CHECK(type == WeightType::kF16 || type == WeightType::kBF16);
  SLUICE_CHECK(o.y_type == DType::kF32 || o.y_type == half);
  std::vector<float> row(static_cast<size_t>(cols)), inputs(size_t(tokens) * size_t(cols));
  for (int t = 0; t < tokens; ++t)
    for (int k = 0; k < cols; ++k) inputs[size_t(t) * size_t(cols) + size_t(k)] = to_float(half, x, size_t(t) * size_t(x_stride) + size_t(k));
  for (int n = 0; n < o.rows; ++n) {
    for (int k = 0; k < cols; ++k) row[size_t(k)] = to_float(half, o.weight, size_t(n) * size_t(cols) + size_t(k));
    for (int t = 0; t < tokens; ++t) {
      const size_t at = size_t(t) * size_t(o.y_stride) + size_t(n);
      float sum = o.bias ? o.bias[n] : 0;
      for (int k = 0; k < cols; ++k) sum += row[size_t(k)] * inputs[size_t(t) * size_t(cols) + size_t(k)];
      store(o.y_type, o.y, at, o.accumulate ? to_float(o.y_type, o.y, at) + sum : sum);
    }
  }
  return cudaSuccess;
}
// Products of codes are 9.0's.
cudaError_t Library::multiply_codes(cudaStream_t, const uint8_t*, const float*, int, int, const Output&) noexcept { return cudaErrorNotSupported; }

}  // namespace sluice::kernels::cuda
