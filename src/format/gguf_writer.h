// Writes GGUF (version 3, little-endian, one part; ggml docs/gguf.md): what open_gguf reads, other programs do too.
// Integers become u32 where they fit, else i64; arrays of integers i32 where they fit; floats f32. Any thread.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "format/metadata.h"
#include "format/weight_file.h"

namespace sluice::format {

// The file appears under its name when it is complete. Tensors keep their order; each needs its bytes, or makes its rows.
// Errors: kIo (the reason of the system); kUnsupported for a layout that GGUF lacks.
Status write_gguf(const std::string& path, const Metadata& metadata, std::span<const TensorEntry> tensors);

// The same file for those who write it piece by piece: its bytes before the tensors' data, where each tensor's data begins, and the
// whole length; what lies between two tensors is zero. Tensors need their format and dims, not their bytes.
struct GgufLayout {
  std::string head;
  std::vector<uint64_t> offsets;
  uint64_t file_bytes = 0;
};
GgufLayout gguf_layout(const Metadata& metadata, std::span<const TensorEntry> tensors);

}  // namespace sluice::format
