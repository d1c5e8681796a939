// Element and weight formats by name. WeightType numbers are GGUF's ggml type ids (so a file's id is the enum's value).
#pragma once
#include <cstdint>
#include <string_view>

namespace sluice {

enum class DType : uint8_t { kF32, kF16, kBF16 };
constexpr int dtype_bytes(DType t) { return t == DType::kF32 ? 4 : 2; }
constexpr std::string_view dtype_name(DType t) {
  return t == DType::kF32 ? "f32" : t == DType::kF16 ? "f16" : "bf16";
}

enum class WeightType : uint8_t {
  kF32 = 0, kF16 = 1, kQ4_0 = 2, kQ4_1 = 3, kQ5_0 = 6, kQ5_1 = 7, kQ8_0 = 8,
  kQ2_K = 10, kQ3_K = 11, kQ4_K = 12, kQ5_K = 13, kQ6_K = 14, kIQ4_NL = 20, kIQ4_XS = 23, kBF16 = 30,
  // Layouts of Sluice's own, which stand in no file: rows of folders of safetensors as kernels are handed them. Integers with a scale and
  // a zero, and FP8 e4m3 with a scale, per 32, 64 or 128 inputs (quant/side_blocks.h).
  kInt4_32 = 200, kInt4_64 = 201, kInt4_128 = 202, kInt8_32 = 203, kInt8_64 = 204, kInt8_128 = 205,
  kFp8_32 = 206, kFp8_64 = 207, kFp8_128 = 208,
};
// No GGUF file may name these.
constexpr bool is_own_type(uint32_t id) { return id >= 200; }

constexpr bool is_int4(WeightType t) { return t >= WeightType::kInt4_32 && t <= WeightType::kInt4_128; }
constexpr bool is_int8(WeightType t) { return t >= WeightType::kInt8_32 && t <= WeightType::kInt8_128; }
constexpr bool is_fp8(WeightType t) { return t >= WeightType::kFp8_32 && t <= WeightType::kFp8_128; }
constexpr bool is_grouped(WeightType t) { return is_int4(t) || is_int8(t); }
// Inputs that share a scale, of the types above.
constexpr int side_unit(WeightType t) { return 32 << ((int(t) - int(WeightType::kInt4_32)) % 3); }

}  // namespace sluice
