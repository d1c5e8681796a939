#include <algorithm>
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
constexpr BlockShape kShape{32, 32, 0, 31, nullptr, true, 1, 1, 1};
void pack(const BlockCodes& c, uint8_t* block) {
  uint8_t q[32];
  for (int i = 0; i < 32; ++i) q[i] = uint8_t(c.level[i]);
  put_half(block, c.d);
  put_half(block + 2, c.m);
  put_fifth_bits(block + 4, q);
  put_nibbles(block + 8, q);
}
// Levels span the block from its lowest to its highest value.
void encode(const float* src, uint8_t* dst, size_t n) {
  for (; n > 0; n -= 32, src += 32, dst += 24) {
    const auto [lo, hi] = std::minmax_element(src, src + 32);
    const float d = (*hi - *lo) / 31, inverse = inverse_or_zero(d);
    uint8_t q[32];
    for (int i = 0; i < 32; ++i) q[i] = uint8_t(std::min(31, int((src[i] - *lo) * inverse + 0.5f)));
    put_half(dst, d);
    put_half(dst + 2, *lo);
    put_fifth_bits(dst + 4, q);
    put_nibbles(dst + 8, q);
  }
}
}  // namespace
extern const WeightFormat format_q5_1{WeightType::kQ5_1, "q5_1", 32, 24, decode, encode, scale_random, &kShape, pack};
}  // namespace sluice::quant
