#include "quant/block_fields.h"
#include "quant/weight_format.h"

namespace sluice::quant {
namespace {
// Low two bits as in Q2_K; the third, which stands for +4, is bit i / 32 of byte i % 32 of the mask.
int shift_of(int i) { return i % 128 / 32 * 2; }
int byte_of(int i) { return 32 * (i / 128) + i % 32; }

// 16 scales of 6 bits less 32: low halves in 8 bytes, high bits in 4.
int scale_at(const uint8_t* s, int g) {
  const int lo = (s[g % 8] >> (g / 8 * 4)) & 15, hi = (s[8 + g % 4] >> (g / 4 * 2)) & 3;
  return (lo | hi << 4) - 32;
}

void decode(const uint8_t* src, float* dst, size_t n) {
  for (size_t b = 0; b < n / 256; ++b, src += 110, dst += 256) {
    const float d = half_at(src + 108);
    for (int i = 0; i < 256; ++i) {
      const int q = ((src[32 + byte_of(i)] >> shift_of(i)) & 3) - ((src[i % 32] >> (i / 32)) & 1 ? 0 : 4);
      dst[i] = d * float(scale_at(src + 96, i / 16)) * float(q);
    }
  }
}
void scale_random(uint8_t* block, float deviation) {
  put_half(block + 108, deviation / (18.5f * 2.35f));
}
constexpr BlockShape kShape{256, 16, -4, 3, nullptr, false, -32, 31, 1};
void pack(const BlockCodes& c, uint8_t* block) {
  std::memset(block, 0, 108);
  for (int i = 0; i < 256; ++i) {
    const int q = c.level[i] + 4;
    block[i % 32] |= uint8_t((q >> 2) << (i / 32));
    block[32 + byte_of(i)] |= uint8_t((q & 3) << shift_of(i));
  }
  for (int g = 0; g < 16; ++g) {
    const int s = c.scale[g] + 32;
    block[96 + g % 8] |= uint8_t((s & 15) << (g / 8 * 4));
    block[104 + g % 4] |= uint8_t((s >> 4) << (g / 4 * 2));
  }
  put_half(block + 108, c.d);
}
void encode(const float* src, uint8_t* dst, size_t n) {
  BlockCodes codes;
  for (; n > 0; n -= 256, src += 256, dst += 110) {
    plain_codes(kShape, src, codes);
    pack(codes, dst);
  }
}
}  // namespace
extern const WeightFormat format_q3_k{WeightType::kQ3_K, "q3_k", 256, 110, decode, encode, scale_random, &kShape, pack};
}  // namespace sluice::quant
