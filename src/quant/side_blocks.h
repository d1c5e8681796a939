// Blocks of Sluice's own: what grouped integers and FP8 with side scales become on their way to a kernel, a scale beside the codes
// that share it. Grouped: f16 scale, u8 zero, Unit codes of 4 (byte i: codes 2i low and 2i + 1 high) or 8 bits; a value is
// scale * (code - zero). FP8: f32 scale, Unit codes of e4m3; a value is scale * code. Pure; any thread.
#pragma once
#include <algorithm>
#include <cmath>

#include "base/fp8.h"
#include "quant/block_fields.h"
#include "quant/weight_format.h"

namespace sluice::quant {

template <int Bits, int Unit>
struct GroupBlock {
  static_assert(Bits == 4 || Bits == 8);
  static constexpr int kBytes = 3 + Unit * Bits / 8, kMiddle = 1 << (Bits - 1);

  static int code(const uint8_t* block, int i) { return Bits == 8 ? block[3 + i] : (block[3 + i / 2] >> (i % 2 * 4)) & 15; }

  static void decode(const uint8_t* src, float* dst, size_t n) {
    for (; n > 0; n -= Unit, src += kBytes, dst += Unit) {
      const float scale = half_at(src);
      for (int i = 0; i < Unit; ++i) dst[i] = scale * float(code(src, i) - int(src[2]));
    }
  }
  // Symmetric: the zero is the middle of the codes.
  static void encode(const float* src, uint8_t* dst, size_t n) {
    for (; n > 0; n -= Unit, src += Unit, dst += kBytes) {
      const auto [low, high] = std::minmax_element(src, src + Unit);
      put_half(dst, std::max(-*low / float(kMiddle), *high / (float(kMiddle) - 0.5f)));
      dst[2] = kMiddle;
      std::fill(dst + 3, dst + kBytes, uint8_t{0});
      const float scale = half_at(dst), inverse = scale > 0 ? 1 / scale : 0;
      for (int i = 0; i < Unit; ++i) {
        const auto q = uint8_t(std::clamp(std::nearbyint(src[i] * inverse) + kMiddle, 0.0f, float(2 * kMiddle - 1)));
        dst[3 + (Bits == 8 ? i : i / 2)] |= uint8_t(q << (Bits == 8 ? 0 : i % 2 * 4));
      }
    }
  }
  static void scale_random(uint8_t* block, float deviation) {
    block[2] = uint8_t(kMiddle - (block[2] & 1));  // codes are even from 0 up: their mean is between two zeros
    put_half(block, deviation / (Bits == 4 ? 4.61f : 73.9f));
  }
  static constexpr WeightFormat format(WeightType type, const char* name) {
    return {type, name, Unit, kBytes, decode, encode, scale_random, nullptr, nullptr};
  }
};

template <int Unit>
struct Fp8Block {
  static constexpr int kBytes = 4 + Unit;

  static void decode(const uint8_t* src, float* dst, size_t n) {
    for (; n > 0; n -= Unit, src += kBytes, dst += Unit) {
      float scale;
      std::memcpy(&scale, src, 4);
      for (int i = 0; i < Unit; ++i) dst[i] = scale * e4m3_to_float(src[4 + i]);
    }
  }
  static void encode(const float* src, uint8_t* dst, size_t n) {
    for (; n > 0; n -= Unit, src += Unit, dst += kBytes) {
      float largest = 0;
      for (int i = 0; i < Unit; ++i) largest = std::max(largest, std::abs(src[i]));
      const float scale = std::max(largest / kE4m3Max, 0x1p-126f);
      std::memcpy(dst, &scale, 4);
      for (int i = 0; i < Unit; ++i) dst[4 + i] = float_to_e4m3(src[i] / scale);
    }
  }
  static void scale_random(uint8_t* block, float deviation) {
    float square = 0;
    for (int i = 0; i < Unit; ++i) {
      if (e4m3_is_nan(block[4 + i])) block[4 + i] ^= 1;
      const float v = e4m3_to_float(block[4 + i]);
      square += v * v;
    }
    const float scale = deviation / std::sqrt(std::max(square / Unit, 0x1p-18f));
    std::memcpy(block, &scale, 4);
  }
  static constexpr WeightFormat format(WeightType type, const char* name) {
    return {type, name, Unit, kBytes, decode, encode, scale_random, nullptr, nullptr};
  }
};

}  // namespace sluice::quant
