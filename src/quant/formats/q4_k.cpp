#include "quant/block_fields.h"
#include "quant/weight_format.h"

namespace sluice::quant {
namespace {
void decode(const uint8_t* src, float* dst, size_t n) {
  for (size_t b = 0; b < n / 256; ++b, src += 144, dst += 256) {
    const float d = half_at(src), dmin = half_at(src + 2);
    for (int g = 0; g < 8; ++g) {
      int scale, min;
      group_scale(src + 4, g, scale, min);
      const uint8_t* q = src + 16 + 32 * (g / 2);
      for (int i = 0; i < 32; ++i)
        dst[32 * g + i] = d * float(scale) * float((q[i] >> (g % 2 * 4)) & 15) - dmin * float(min);
    }
  }
}
void scale_random(uint8_t* block, float deviation) {
  const float d = deviation / 258.0f;  // scales and minimums of 0..63, which vary by themselves
  put_half(block, d);
  put_half(block + 2, 7.5f * d);
}
}  // namespace
extern const WeightFormat format_q4_k{WeightType::kQ4_K, "q4_k", 256, 144, decode, nullptr, scale_random};
}  // namespace sluice::quant
