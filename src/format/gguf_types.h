// The value types of GGUF's metadata by their number in the file.
#pragma once
#include <cstdint>

namespace sluice::format {

enum GgufType : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64 };

}  // namespace sluice::format
