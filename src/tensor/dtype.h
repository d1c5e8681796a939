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
};
constexpr int kNumWeightTypeIds = 48;  // size of tables indexed by WeightType

}  // namespace sluice
