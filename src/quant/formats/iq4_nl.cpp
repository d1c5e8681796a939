#include "quant/block_fields.h"
#include "quant/codebook.h"
#include "quant/weight_format.h"

namespace sluice::quant {
namespace {
void decode(const uint8_t* src, float* dst, size_t n) {
  for (size_t b = 0; b < n / 32; ++b, src += 18, dst += 32) {
    const float d = half_at(src);
    for (int i = 0; i < 32; ++i) dst[i] = d * float(kNonLinear4[(src[2 + i % 16] >> (i / 16 * 4)) & 15]);
  }
}
void scale_random(uint8_t* block, float deviation) {
  put_half(block, (block[1] & 1 ? deviation : -deviation) / 67.4f);  // the codebook's mean is not 0: signs even it out
}
constexpr BlockShape kShape{32, 32, 0, 15, kNonLinear4, false, 1, 1, 1};
void pack(const BlockCodes& c, uint8_t* block) {
  put_half(block, c.d);
  put_nibbles(block + 2, reinterpret_cast<const uint8_t*>(c.level));
}
void encode(const float* src, uint8_t* dst, size_t n) {
  BlockCodes codes;
  for (; n > 0; n -= 32, src += 32, dst += 18) {
    plain_codes(kShape, src, codes);
    pack(codes, dst);
  }
}
}  // namespace
extern const WeightFormat format_iq4_nl{WeightType::kIQ4_NL, "iq4_nl", 32, 18, decode, encode, scale_random, &kShape, pack};
}  // namespace sluice::quant
