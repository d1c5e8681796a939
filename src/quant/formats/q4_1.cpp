#include "quant/block_fields.h"
#include "quant/weight_format.h"

namespace sluice::quant {
namespace {
void decode(const uint8_t* src, float* dst, size_t n) {
  for (size_t b = 0; b < n / 32; ++b, src += 20, dst += 32) {
    const float d = half_at(src), m = half_at(src + 2);
    for (int i = 0; i < 32; ++i) dst[i] = d * float((src[4 + i % 16] >> (i / 16 * 4)) & 15) + m;
  }
}
void scale_random(uint8_t* block, float deviation) {
  const float d = deviation / 4.61f;
  put_half(block, d);
  put_half(block + 2, -7.5f * d);
}
}  // namespace
extern const WeightFormat format_q4_1{WeightType::kQ4_1, "q4_1", 32, 20, decode, nullptr, scale_random};
}  // namespace sluice::quant
