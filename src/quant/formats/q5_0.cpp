#include <algorithm>
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
constexpr BlockShape kShape{32, 32, -16, 15, nullptr, false, 1, 1, 1};
void pack(const BlockCodes& c, uint8_t* block) {
  uint8_t q[32];
  for (int i = 0; i < 32; ++i) q[i] = uint8_t(c.level[i] + 16);
  put_half(block, c.d);
  put_fifth_bits(block + 2, q);
  put_nibbles(block + 6, q);
}
// The value furthest from zero takes level -16.
void encode(const float* src, uint8_t* dst, size_t n) {
  for (; n > 0; n -= 32, src += 32, dst += 22) {
    const float d = furthest(src, 32) / -16, inverse = inverse_or_zero(d);
    uint8_t q[32];
    for (int i = 0; i < 32; ++i) q[i] = uint8_t(std::min(31, int(src[i] * inverse + 16.5f)));
    put_half(dst, d);
    put_fifth_bits(dst + 2, q);
    put_nibbles(dst + 6, q);
  }
}
}  // namespace
extern const WeightFormat format_q5_0{WeightType::kQ5_0, "q5_0", 32, 22, decode, encode, scale_random, &kShape, pack};
}  // namespace sluice::quant
