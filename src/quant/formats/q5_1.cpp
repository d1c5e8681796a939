#include <cstring>

#include "quant/block_fields.h"
#include "quant/weight_format.h"

namespace sluice::quant {
namespace {
void decode(const uint8_t* src, float* dst, size_t n) {
  for (size_t b = 0; b < n / 32; ++b, src += 24, dst += 32) {
    const float d = half_at(src), m = half_at(src + 2);
    uint32_t high;
    std::memcpy(&high, src + 4, 4);
    for (int i = 0; i < 32; ++i) {
      const int q = ((src[8 + i % 16] >> (i / 16 * 4)) & 15) + int((high >> i) & 1) * 16;
      dst[i] = d * float(q) + m;
    }
  }
}
void scale_random(uint8_t* block, float deviation) {
  const float d = deviation / 9.23f;
  put_half(block, d);
  put_half(block + 2, -15.5f * d);
}
}  // namespace
extern const WeightFormat format_q5_1{WeightType::kQ5_1, "q5_1", 32, 24, decode, nullptr, scale_random};
}  // namespace sluice::quant
