#include "quant/block_fields.h"
#include "quant/weight_format.h"

namespace sluice::quant {
namespace {
// Elements 32k..32k+31 of each half of 128 are bits 2k, 2k+1 of its 32 bytes.
int shift_of(int i) { return i % 128 / 32 * 2; }
int byte_of(int i) { return 32 * (i / 128) + i % 32; }

void decode(const uint8_t* src, float* dst, size_t n) {
  for (size_t b = 0; b < n / 256; ++b, src += 84, dst += 256) {
    const float d = half_at(src + 80), dmin = half_at(src + 82);
    for (int i = 0; i < 256; ++i) {
      const int s = src[i / 16], q = (src[16 + byte_of(i)] >> shift_of(i)) & 3;
      dst[i] = d * float(s & 15) * float(q) - dmin * float(s >> 4);
    }
  }
}
void scale_random(uint8_t* block, float deviation) {
  const float d = deviation / 13.9f;  // scales and minimums of 0..15, which vary by themselves
  put_half(block + 80, d);
  put_half(block + 82, 1.5f * d);
}
constexpr BlockShape kShape{256, 16, 0, 3, nullptr, true, 0, 15, 15};
void pack(const BlockCodes& c, uint8_t* block) {
  for (int g = 0; g < 16; ++g) block[g] = uint8_t(c.scale[g] | c.offset[g] << 4);
  std::memset(block + 16, 0, 64);
  for (int i = 0; i < 256; ++i) block[16 + byte_of(i)] |= uint8_t(c.level[i] << shift_of(i));
  put_half(block + 80, c.d);
  put_half(block + 82, -c.m);
}
void encode(const float* src, uint8_t* dst, size_t n) {
  BlockCodes codes;
  for (; n > 0; n -= 256, src += 256, dst += 84) {
    plain_codes(kShape, src, codes);
    pack(codes, dst);
  }
}
}  // namespace
extern const WeightFormat format_q2_k{WeightType::kQ2_K, "q2_k", 256, 84, decode, encode, scale_random, &kShape, pack};
}  // namespace sluice::quant
