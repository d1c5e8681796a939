// A matrix of grouped integers, in whatever order a file packs it, as a TensorEntry that makes rows of quant/side_blocks.h. Columns are
// sorted by group where an activation order has scattered them, and the entry says so (input_order).
#pragma once
#include <cstring>
#include <memory>
#include <vector>

#include "base/half.h"
#include "format/weight_file.h"

namespace sluice::format {

struct GroupedShape {
  int64_t rows = 0, cols = 0;
  int bits = 4;                   // 2..8
  std::vector<int32_t> group_of;  // [cols]
  int64_t groups = 0;
};

// How the columns go: sorted by group, and the most inputs that share a scale in every block of so many.
struct GroupOrder {
  std::shared_ptr<const std::vector<int32_t>> columns;  // null: as they are
  int unit = 0;
};
// Errors: kBadFile for a group outside [0, groups); kUnsupported where groups are no multiples of 32 inputs.
Result<GroupOrder> order_groups(const std::string& name, const GroupedShape& shape);
const quant::WeightFormat* grouped_format(int bits, int unit);

// code(n, k), zero(n, g): unsigned, below 2^bits. scale(n, g). All three may be called by any thread at once.
template <class Code, class Zero, class Scale>
Result<TensorEntry> grouped_entry(const std::string& name, GroupedShape shape, uint64_t file_bytes, Code code, Zero zero, Scale scale) {
  SLUICE_ASSIGN(GroupOrder order, order_groups(name, shape));
  TensorEntry t;
  t.name = name;
  t.weight_format = grouped_format(shape.bits, order.unit);
  t.type_id = uint32_t(t.weight_format->type);
  t.dims = {shape.cols, shape.rows};
  t.made_from_bytes = file_bytes;
  t.input_order = order.columns;
  const int block_bytes = t.weight_format->block_bytes;
  t.make_rows = [=, shape = std::make_shared<const GroupedShape>(std::move(shape))](int64_t begin, int64_t end, uint8_t* out) {
    // Fewer bits keep their distance from the middle: 3 bits' 4 becomes 4 bits' 8.
    const int wide = shape->bits <= 4 ? 4 : 8, shift = (1 << (wide - 1)) - (1 << (shape->bits - 1));
    const int unit = order.unit;
    const size_t row = size_t(shape->cols / unit) * size_t(block_bytes);
    std::memset(out, 0, row * size_t(end - begin));
    // Down the columns and across the rows, as most packings lie.
    for (int64_t i = 0; i < shape->cols; ++i) {
      const int64_t k = order.columns ? (*order.columns)[size_t(i)] : i, g = shape->group_of[size_t(k)];
      uint8_t* block = out + size_t(i / unit) * size_t(block_bytes);
      uint8_t* at = block + 3 + (wide == 8 ? i % unit : i % unit / 2);
      for (int64_t n = begin; n < end; ++n, block += row, at += row) {
        if (i % unit == 0) {
          const uint16_t half = float_to_half(scale(n, g));
          std::memcpy(block, &half, 2);
          block[2] = uint8_t(int(zero(n, g)) + shift);
        }
        *at |= uint8_t((int(code(n, k)) + shift) << (wide == 4 ? i % 2 * 4 : 0));
      }
    }
  };
  return t;
}

}  // namespace sluice::format
