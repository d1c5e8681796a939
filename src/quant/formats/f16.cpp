#include <cstring>

#include "base/half.h"
#include "quant/weight_format.h"

namespace sluice::quant {
namespace {
void decode(const uint8_t* src, float* dst, size_t n) {
  for (size_t i = 0; i < n; ++i) { uint16_t h; std::memcpy(&h, src + 2 * i, 2); dst[i] = half_to_float(h); }
}
void encode(const float* src, uint8_t* dst, size_t n) {
  for (size_t i = 0; i < n; ++i) { const uint16_t h = float_to_half(src[i]); std::memcpy(dst + 2 * i, &h, 2); }
}
}  // namespace
extern const WeightFormat format_f16{WeightType::kF16, "f16", 1, 2, decode, encode, nullptr};
}  // namespace sluice::quant
