#include "quant/cache_row.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "base/fp8.h"
#include "base/half.h"

namespace sluice::quant {
namespace {

constexpr float kInt8Max = 127, kInt4Max = 15;

// To bfloat16 towards +infinity, of a number that is not negative; and towards -infinity.
float bf16_up(float v) {
  const uint32_t x = std::bit_cast<uint32_t>(v);
  return std::isfinite(v) ? std::bit_cast<float>((x + 0xFFFFu) & 0xFFFF0000u) : std::numeric_limits<float>::quiet_NaN();
}
float bf16_down(float v) {
  const uint32_t x = std::bit_cast<uint32_t>(v);
  return std::bit_cast<float>((v < 0 ? x + 0xFFFFu : x) & 0xFFFF0000u);
}
void put_bf16(uint8_t* to, float v) {
  const uint16_t h = float_to_bf16(v);
  std::memcpy(to, &h, 2);
}
float get_bf16(const uint8_t* from) {
  uint16_t h;
  std::memcpy(&h, from, 2);
  return bf16_to_float(h);
}
float inverse(float scale) { return scale > 0 ? 1 / scale : 0; }
bool all_finite(const float* x, int n) { return std::all_of(x, x + n, [](float v) { return std::isfinite(v); }); }

void encode_floats(CacheElement e, const float* x, int n, uint8_t* row) {
  if (e == CacheElement::kF32) {
    std::memcpy(row, x, size_t(n) * 4);
    return;
  }
  for (int i = 0; i < n; ++i) {  // f16 is clamped: an infinite key or value would spoil every later token
    const uint16_t h = e == CacheElement::kF16 ? float_to_half(std::clamp(x[i], -65504.0f, 65504.0f)) : float_to_bf16(x[i]);
    std::memcpy(row + 2 * i, &h, 2);
  }
}

void encode_bytes(CacheElement e, const float* x, int n, uint8_t* row) {
  float largest = 0;
  for (int i = 0; i < n; ++i) largest = std::max(largest, std::fabs(x[i]));
  const bool fp8 = e == CacheElement::kFp8;
  const float scale = all_finite(x, n) ? bf16_up(largest / (fp8 ? kE4m3Max : kInt8Max)) : std::numeric_limits<float>::quiet_NaN();
  const float factor = inverse(scale);
  for (int i = 0; i < n; ++i) row[i] = fp8 ? float_to_e4m3(x[i] * factor) : uint8_t(int8_t(std::nearbyint(std::clamp(x[i] * factor, -kInt8Max, kInt8Max))));
  put_bf16(row + n, scale);
}

// Dimensions beyond the head's are zeros that nobody reads; they do not count for the range.
void encode_group(const float* x, int n, uint8_t* codes, uint8_t* scales) {
  const auto [least, most] = std::minmax_element(x, x + n);
  const bool finite = all_finite(x, n);
  const float minimum = finite ? bf16_down(*least) : 0;
  const float scale = finite ? bf16_up((*most - minimum) / kInt4Max) : std::numeric_limits<float>::quiet_NaN();
  const float factor = inverse(scale);
  std::memset(codes, 0, kCacheGroup / 2);
  for (int i = 0; i < n; ++i) {
    const auto code = uint8_t(std::nearbyint(std::clamp((x[i] - minimum) * factor, 0.0f, kInt4Max)));
    codes[i % (kCacheGroup / 2)] |= uint8_t(i < kCacheGroup / 2 ? code : code << 4);
  }
  put_bf16(scales, scale);
  put_bf16(scales + 2, minimum);
}

void decode_group(const uint8_t* codes, const uint8_t* scales, int n, float* x) {
  const float scale = get_bf16(scales), minimum = get_bf16(scales + 2);
  for (int i = 0; i < n; ++i) {
    const uint8_t byte = codes[i % (kCacheGroup / 2)];
    x[i] = float(i < kCacheGroup / 2 ? byte & 15 : byte >> 4) * scale + minimum;
  }
}

}  // namespace

void encode_cache_row(CacheElement e, const float* x, int n, uint8_t* row) {
  if (is_float(e)) return encode_floats(e, x, n, row);
  if (e != CacheElement::kInt4) return encode_bytes(e, x, n, row);
  for (int g = 0; g < cache_groups(n); ++g)
    encode_group(x + g * kCacheGroup, std::min(kCacheGroup, n - g * kCacheGroup), row + g * (kCacheGroup / 2),
                 row + cache_code_bytes(e, n) + size_t(g) * 4);
}

void decode_cache_row(CacheElement e, const uint8_t* row, int n, float* x) {
  const uint8_t* scales = row + cache_code_bytes(e, n);
  if (e == CacheElement::kF32) {
    std::memcpy(x, row, size_t(n) * 4);
  } else if (is_float(e)) {
    for (int i = 0; i < n; ++i) {
      uint16_t h;
      std::memcpy(&h, row + 2 * i, 2);
      x[i] = e == CacheElement::kF16 ? half_to_float(h) : bf16_to_float(h);
    }
  } else if (e == CacheElement::kInt4) {
    for (int g = 0; g < cache_groups(n); ++g)
      decode_group(row + g * (kCacheGroup / 2), scales + 4 * g, std::min(kCacheGroup, n - g * kCacheGroup), x + g * kCacheGroup);
  } else {
    const float scale = get_bf16(scales);
    for (int i = 0; i < n; ++i) x[i] = (e == CacheElement::kFp8 ? e4m3_to_float(row[i]) : float(int8_t(row[i]))) * scale;
  }
}

void close_key_group(const uint8_t* rows, int n, uint8_t* group) {
  std::vector<float> x(size_t(n) * kKeyGroup), least(static_cast<size_t>(n)), most(static_cast<size_t>(n));
  for (int t = 0; t < kKeyGroup; ++t) decode_cache_row(CacheElement::kInt8, rows + size_t(t) * cache_row_bytes(CacheElement::kInt8, n), n, &x[size_t(t) * size_t(n)]);
  float lowest = 0, widest = 0;
  for (int d = 0; d < n; ++d) {
    least[size_t(d)] = most[size_t(d)] = x[size_t(d)];
    for (size_t i = size_t(d); i < x.size(); i += size_t(n)) {
      least[size_t(d)] = std::min(least[size_t(d)], x[i]);
      most[size_t(d)] = std::max(most[size_t(d)], x[i]);
    }
    lowest = std::max(lowest, std::fabs(least[size_t(d)]));
  }
  uint8_t *s = group + size_t(n) * kKeyGroup / 2, *m = s + n;
  const float minimum_unit = bf16_up(lowest / kInt8Max);
  for (int d = 0; d < n; ++d) {
    m[d] = uint8_t(int8_t(std::clamp(std::floor(least[size_t(d)] * inverse(minimum_unit)), -kInt8Max, kInt8Max)));
    widest = std::max(widest, most[size_t(d)] - float(int8_t(m[d])) * minimum_unit);
  }
  const bool finite = all_finite(x.data(), int(x.size()));
  const float scale_unit = finite ? bf16_up(widest / (kInt4Max * 255)) : std::numeric_limits<float>::quiet_NaN();
  std::memset(group, 0, size_t(n) * kKeyGroup / 2);
  for (int d = 0; d < n; ++d) {
    const float minimum = float(int8_t(m[d])) * minimum_unit;
    s[d] = uint8_t(finite ? std::min(std::ceil((most[size_t(d)] - minimum) * inverse(kInt4Max * scale_unit)), 255.0f) : 0);
    const float factor = inverse(float(s[d]) * scale_unit);
    for (int t = 0; finite && t < kKeyGroup; ++t) {
      const auto code = uint8_t(std::nearbyint(std::clamp((x[size_t(t) * size_t(n) + size_t(d)] - minimum) * factor, 0.0f, kInt4Max)));
      group[size_t(t) * size_t(n) / 2 + size_t(d) / 2] |= uint8_t(d % 2 ? code << 4 : code);
    }
  }
  put_bf16(m + n, scale_unit);
  put_bf16(m + n + 2, finite ? minimum_unit : 0);
}

void decode_grouped_key(const uint8_t* group, int token, int n, float* x) {
  const uint8_t *codes = group + size_t(token) * size_t(n) / 2, *s = group + size_t(n) * kKeyGroup / 2, *m = s + n;
  const float scale_unit = get_bf16(m + n), minimum_unit = get_bf16(m + n + 2);
  for (int d = 0; d < n; ++d)
    x[d] = float(d % 2 ? codes[d / 2] >> 4 : codes[d / 2] & 15) * (float(s[d]) * scale_unit) + float(int8_t(m[d])) * minimum_unit;
}

void mix_dims(float* x, int head_dim) {
  const int n = mixed_block(head_dim);
  const float factor = 1 / std::sqrt(float(n));
  for (int half = 1; half < n; half *= 2)
    for (int i = 0; i < head_dim; ++i) {
      if (i & half) continue;
      const float a = x[i], b = x[i + half];
      x[i] = a + b;
      x[i + half] = a - b;
    }
  for (int i = 0; i < head_dim; ++i) x[i] *= factor;
}

}  // namespace sluice::quant
