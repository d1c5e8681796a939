#include "quant/block_fields.h"
#include "quant/weight_format.h"

namespace sluice::quant {
namespace {
void decode(const uint8_t* src, float* dst, size_t n) {
  for (size_t b = 0; b < n / 32; ++b, src += 18, dst += 32) {
    const float d = half_at(src);
    for (int i = 0; i < 32; ++i) dst[i] = d * float(((src[2 + i % 16] >> (i / 16 * 4)) & 15) - 8);
  }
}
void scale_random(uint8_t* block, float deviation) {
  put_half(block, (block[1] & 1 ? deviation : -deviation) / 4.64f);  // the mean of -8..7 is not 0: signs even it out
}
}  // namespace
extern const WeightFormat format_q4_0{WeightType::kQ4_0, "q4_0", 32, 18, decode, nullptr, scale_random};
}  // namespace sluice::quant
