#include "quant/block_fields.h"
#include "quant/weight_format.h"

namespace sluice::quant {
namespace {
void decode(const uint8_t* src, float* dst, size_t n) {
  for (size_t b = 0; b < n / 256; ++b, src += 176, dst += 256) {
    const float d = half_at(src), dmin = half_at(src + 2);
    for (int g = 0; g < 8; ++g) {
      int scale, min;
      group_scale(src + 4, g, scale, min);
      const uint8_t* high = src + 16;
      const uint8_t* low = src + 48 + 32 * (g / 2);
      for (int i = 0; i < 32; ++i) {
        const int q = ((low[i] >> (g % 2 * 4)) & 15) + ((high[i] >> g) & 1) * 16;
        dst[32 * g + i] = d * float(scale) * float(q) - dmin * float(min);
      }
    }
  }
}
void scale_random(uint8_t* block, float deviation) {
  const float d = deviation / 527.0f;  // scales and minimums of 0..63, which vary by themselves
  put_half(block, d);
  put_half(block + 2, 15.5f * d);
}
constexpr BlockShape kShape{256, 32, 0, 31, nullptr, true, 0, 63, 63};
void pack(const BlockCodes& c, uint8_t* block) {
  put_half(block, c.d);
  put_half(block + 2, -c.m);
  put_group_scales(block + 4, c.scale, c.offset);
  for (int i = 0; i < 32; ++i) {
    block[16 + i] = 0;
    for (int g = 0; g < 8; ++g) block[16 + i] |= uint8_t((c.level[32 * g + i] >> 4) << g);
  }
  for (int i = 0; i < 128; ++i) {
    const int at = 64 * (i / 32) + i % 32;
    block[48 + i] = uint8_t((c.level[at] & 15) | (c.level[at + 32] & 15) << 4);
  }
}
void encode(const float* src, uint8_t* dst, size_t n) {
  BlockCodes codes;
  for (; n > 0; n -= 256, src += 256, dst += 176) {
    plain_codes(kShape, src, codes);
    pack(codes, dst);
  }
}
}  // namespace
extern const WeightFormat format_q5_k{WeightType::kQ5_K, "q5_k", 256, 176, decode, encode, scale_random, &kShape, pack};
}  // namespace sluice::quant
