#include <cstring>

#include "format/weight_file.h"

namespace sluice::format {

void read_rows(const TensorEntry& t, int64_t begin, int64_t end, uint8_t* out) {
  SLUICE_CHECK(t.weight_format && begin >= 0 && begin <= end && end <= t.rows());
  if (t.make_rows) return t.make_rows(begin, end, out);
  const size_t row = quant::row_bytes(*t.weight_format, size_t(t.cols()));
  std::memcpy(out, t.bytes.data() + size_t(begin) * row, size_t(end - begin) * row);
}

void decode_rows(const TensorEntry& t, int64_t begin, int64_t end, float* out) {
  const size_t row = quant::row_bytes(*t.weight_format, size_t(t.cols())), cols = size_t(t.cols());
  std::vector<uint8_t> made(t.make_rows ? row : 0);
  std::vector<float> ordered(t.input_order ? cols : 0);
  for (int64_t r = begin; r < end; ++r, out += cols) {
    if (t.make_rows) read_rows(t, r, r + 1, made.data());
    const uint8_t* from = t.make_rows ? made.data() : t.bytes.data() + size_t(r) * row;
    t.weight_format->decode(from, t.input_order ? ordered.data() : out, cols);
    if (t.input_order)
      for (size_t k = 0; k < cols; ++k) out[(*t.input_order)[k]] = ordered[k];
  }
}

}  // namespace sluice::format
