#include <algorithm>

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
constexpr BlockShape kShape{32, 32, -8, 7, nullptr, false, 1, 1, 1};
void pack(const BlockCodes& c, uint8_t* block) {
  uint8_t q[32];
  for (int i = 0; i < 32; ++i) q[i] = uint8_t(c.level[i] + 8);
  put_half(block, c.d);
  put_nibbles(block + 2, q);
}
// The value furthest from zero takes level -8 and so is exact but for the scale's rounding.
void encode(const float* src, uint8_t* dst, size_t n) {
  for (; n > 0; n -= 32, src += 32, dst += 18) {
    const float d = furthest(src, 32) / -8, inverse = inverse_or_zero(d);
    uint8_t q[32];
    for (int i = 0; i < 32; ++i) q[i] = uint8_t(std::min(15, int(src[i] * inverse + 8.5f)));
    put_half(dst, d);
    put_nibbles(dst + 2, q);
  }
}
}  // namespace
extern const WeightFormat format_q4_0{WeightType::kQ4_0, "q4_0", 32, 18, decode, encode, scale_random, &kShape, pack};
}  // namespace sluice::quant
