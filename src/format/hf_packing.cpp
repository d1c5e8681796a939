#include "format/hf_packing.h"

#include <cstring>
#include <limits>

#include "base/half.h"
#include "format/shown.h"

namespace sluice::format {

Error wrong_shape(const StTensor& t, const std::string& wanted) {
  std::string have;
  for (int64_t d : t.shape) have += (have.empty() ? "" : ", ") + std::to_string(d);
  return bad_file(shown(t.name) + ": " + traits(t.dtype).name + " [" + have + "], wanted " + wanted);
}

Error missing_part(const HfModule& module, const char* part) { return bad_file(shown(module.name) + "." + part + ": the tensor is missing"); }

bool has_shape(const StTensor& t, std::initializer_list<int64_t> shape) { return t.shape == std::vector<int64_t>(shape); }

bool is_float(const StTensor& t) { return t.dtype == StDtype::kF32 || t.dtype == StDtype::kF16 || t.dtype == StDtype::kBF16; }

float float_at(const StTensor& t, int64_t i) {
  uint16_t h;
  float f = std::numeric_limits<float>::quiet_NaN();
  if (t.dtype == StDtype::kF32) {
    std::memcpy(&f, t.bytes.data() + 4 * i, 4);
  } else if (t.dtype == StDtype::kF16 || t.dtype == StDtype::kBF16) {
    std::memcpy(&h, t.bytes.data() + 2 * i, 2);
    f = t.dtype == StDtype::kF16 ? half_to_float(h) : bf16_to_float(h);
  }
  return f;
}

uint32_t word_at(const StTensor& t, int64_t i) {
  uint32_t w;
  std::memcpy(&w, t.bytes.data() + 4 * i, 4);
  return w;
}

uint32_t packed_at(const StTensor& t, int64_t first_word, int64_t stride, int bits, int64_t i) {
  const int64_t bit = i * bits;
  const int shift = int(bit % 32);
  uint64_t pair = word_at(t, first_word + bit / 32 * stride);
  if (shift + bits > 32) pair |= uint64_t(word_at(t, first_word + (bit / 32 + 1) * stride)) << 32;
  return uint32_t(pair >> shift) & ((1u << bits) - 1);
}

}  // namespace sluice::format
