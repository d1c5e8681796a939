#include "quant/block_fields.h"
#include "quant/weight_format.h"

namespace sluice::quant {
namespace {
void decode(const uint8_t* src, float* dst, size_t n) {
  for (size_t b = 0; b < n / 256; ++b, src += 210, dst += 256) {
    const uint8_t *low = src, *high = src + 128;
    const auto* scales = reinterpret_cast<const int8_t*>(src + 192);
    const float d = half_at(src + 208);
    for (int i = 0; i < 256; ++i) {
      const int h = i / 128, k = i % 128 / 32, l = i % 32;
      const int lo = (low[64 * h + 32 * (k % 2) + l] >> (k / 2 * 4)) & 15;
      const int hi = (high[32 * h + l] >> (2 * k)) & 3;
      dst[i] = d * float(scales[i / 16]) * float((lo | hi << 4) - 32);
    }
  }
}
void scale_random(uint8_t* block, float deviation) {
  put_half(block + 208, deviation / (73.9f * 18.5f));
}
constexpr BlockShape kShape{256, 16, -32, 31, nullptr, false, -128, 127, 1};
void pack(const BlockCodes& c, uint8_t* block) {
  for (int i = 0; i < 128; ++i) {  // byte i of the low bits: levels k and k + 64 of each half
    const int at = 128 * (i / 64) + i % 64;
    block[i] = uint8_t(((c.level[at] + 32) & 15) | ((c.level[at + 64] + 32) & 15) << 4);
  }
  for (int i = 0; i < 64; ++i) {
    block[128 + i] = 0;
    for (int k = 0; k < 4; ++k) block[128 + i] |= uint8_t((c.level[128 * (i / 32) + 32 * k + i % 32] + 32) >> 4 << (2 * k));
  }
  std::memcpy(block + 192, c.scale, 16);
  put_half(block + 208, c.d);
}
void encode(const float* src, uint8_t* dst, size_t n) {
  BlockCodes codes;
  for (; n > 0; n -= 256, src += 256, dst += 210) {
    plain_codes(kShape, src, codes);
    pack(codes, dst);
  }
}
}  // namespace
extern const WeightFormat format_q6_k{WeightType::kQ6_K, "q6_k", 256, 210, decode, encode, scale_random, &kShape, pack};
}  // namespace sluice::quant
