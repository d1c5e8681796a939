#include <cstring>

#include "base/half.h"
#include "quant/weight_format.h"

namespace sluice::quant {
namespace {
void decode(const uint8_t* src, float* dst, size_t n) {
  std::memcpy(dst, src, n * 4);
}
void encode(const float* src, uint8_t* dst, size_t n) {
  std::memcpy(dst, src, n * 4);
}
}  // namespace
extern const WeightFormat format_f32{WeightType::kF32, "f32", 1, 4, decode, encode, nullptr};
}  // namespace sluice::quant
