#include "quant/block_fields.h"
#include "quant/codebook.h"
#include "quant/weight_format.h"

namespace sluice::quant {
namespace {
// 8 scales of 6 bits less 32: low halves in 4 bytes after a word with the high bits.
int scale_at(const uint8_t* p, int g) {
  const int high = p[2] | p[3] << 8;
  return (((p[4 + g / 2] >> (g % 2 * 4)) & 15) | ((high >> (2 * g)) & 3) << 4) - 32;
}

void decode(const uint8_t* src, float* dst, size_t n) {
  for (size_t b = 0; b < n / 256; ++b, src += 136, dst += 256) {
    const float d = half_at(src);
    for (int i = 0; i < 256; ++i) {
      const int q = (src[8 + 16 * (i / 32) + i % 16] >> (i % 32 / 16 * 4)) & 15;
      dst[i] = d * float(scale_at(src, i / 32)) * float(kNonLinear4[q]);
    }
  }
}
void scale_random(uint8_t* block, float deviation) {
  put_half(block, deviation / (18.5f * 67.4f));
}
constexpr BlockShape kShape{256, 32, 0, 15, kNonLinear4, false, -32, 31, 1};
void pack(const BlockCodes& c, uint8_t* block) {
  std::memset(block, 0, 8);
  put_half(block, c.d);
  for (int g = 0; g < 8; ++g) {
    const int s = c.scale[g] + 32;
    block[4 + g / 2] |= uint8_t((s & 15) << (g % 2 * 4));
    block[2 + g / 4] |= uint8_t((s >> 4) << (g % 4 * 2));
    put_nibbles(block + 8 + 16 * g, reinterpret_cast<const uint8_t*>(c.level) + 32 * g);
  }
}
void encode(const float* src, uint8_t* dst, size_t n) {
  BlockCodes codes;
  for (; n > 0; n -= 256, src += 256, dst += 136) {
    plain_codes(kShape, src, codes);
    pack(codes, dst);
  }
}
}  // namespace
extern const WeightFormat format_iq4_xs{WeightType::kIQ4_XS, "iq4_xs", 256, 136, decode, encode, scale_random, &kShape, pack};
}  // namespace sluice::quant
