#include "quant/block_fields.h"
#include "quant/weight_format.h"

namespace sluice::quant {
namespace {
void decode(const uint8_t* src, float* dst, size_t n) {
  for (size_t b = 0; b < n / 32; ++b, src += 34, dst += 32) {
    const float d = half_at(src);
    for (int i = 0; i < 32; ++i) dst[i] = d * float(int8_t(src[2 + i]));
  }
}
void scale_random(uint8_t* block, float deviation) {
  put_half(block, deviation / 73.9f);
}
}  // namespace
extern const WeightFormat format_q8_0{WeightType::kQ8_0, "q8_0", 32, 34, decode, nullptr, scale_random};
}  // namespace sluice::quant
