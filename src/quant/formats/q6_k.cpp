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
}  // namespace
extern const WeightFormat format_q6_k{WeightType::kQ6_K, "q6_k", 256, 210, decode, nullptr, scale_random};
}  // namespace sluice::quant
