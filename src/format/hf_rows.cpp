#include "format/hf_rows.h"

#include <algorithm>
#include <cstring>

namespace sluice::format {

TensorEntry reorder_heads(TensorEntry t, HeadOrder order, int64_t head_dim) {
  SLUICE_CHECK(head_dim > 0 && head_dim % 2 == 0 && t.rows() % head_dim == 0);
  TensorEntry out = t;
  out.made_from_bytes = t.file_bytes();
  out.bytes = {};
  const size_t row = quant::row_bytes(*t.weight_format, size_t(t.cols()));
  out.make_rows = [source = std::move(t), order, head_dim, row](int64_t begin, int64_t end, uint8_t* to) {
    std::vector<uint8_t> head(size_t(head_dim) * row);  // a whole head at a time: some layouts are read best in runs of rows
    for (int64_t first = begin / head_dim * head_dim; first < end; first += head_dim) {
      read_rows(source, first, first + head_dim, head.data());
      for (int64_t r = std::max(begin, first); r < std::min(end, first + head_dim); ++r)
        std::memcpy(to + size_t(r - begin) * row, head.data() + size_t(head_row(order, r - first, head_dim)) * row, row);
    }
  };
  return out;
}

}  // namespace sluice::format
