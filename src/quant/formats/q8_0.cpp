#include <algorithm>
#include <cmath>

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
constexpr BlockShape kShape{32, 32, -127, 127, nullptr, false, 1, 1, 1};
void pack(const BlockCodes& c, uint8_t* block) {
  put_half(block, c.d);
  for (int i = 0; i < 32; ++i) block[2 + i] = uint8_t(c.level[i]);
}
// Halves go away from zero.
void encode(const float* src, uint8_t* dst, size_t n) {
  for (; n > 0; n -= 32, src += 32, dst += 34) {
    const float d = std::fabs(furthest(src, 32)) / 127, inverse = inverse_or_zero(d);
    put_half(dst, d);
    for (int i = 0; i < 32; ++i) {
      const float a = std::fabs(src[i] * inverse), whole = std::floor(a);
      const float q = whole + std::floor(2 * (a - whole));
      dst[2 + i] = uint8_t(int8_t(std::min(127.0f, q) * (src[i] * inverse < 0 ? -1.0f : 1.0f)));
    }
  }
}
}  // namespace
extern const WeightFormat format_q8_0{WeightType::kQ8_0, "q8_0", 32, 34, decode, encode, scale_random, &kShape, pack};
}  // namespace sluice::quant
