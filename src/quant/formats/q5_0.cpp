#include <cstring>

#include "quant/block_fields.h"
#include "quant/weight_format.h"

namespace sluice::quant {
namespace {
void decode(const uint8_t* src, float* dst, size_t n) {
  for (size_t b = 0; b < n / 32; ++b, src += 22, dst += 32) {
    const float d = half_at(src);
    uint32_t high;
    std::memcpy(&high, src + 2, 4);
    for (int i = 0; i < 32; ++i) {
      const int q = ((src[6 + i % 16] >> (i / 16 * 4)) & 15) + int((high >> i) & 1) * 16;
      dst[i] = d * float(q - 16);
    }
  }
}
void scale_random(uint8_t* block, float deviation) {
  put_half(block, (block[1] & 1 ? deviation : -deviation) / 9.25f);  // the mean of -16..15 is not 0: signs even it out
}
}  // namespace
extern const WeightFormat format_q5_0{WeightType::kQ5_0, "q5_0", 32, 22, decode, nullptr, scale_random};
}  // namespace sluice::quant
