#include "format/grouped_rows.h"

#include <algorithm>
#include <numeric>

#include "format/shown.h"

namespace sluice::format {

Result<GroupOrder> order_groups(const std::string& name, const GroupedShape& s) {
  for (int32_t g : s.group_of)
    if (g < 0 || g >= s.groups) return bad_file(shown(name) + ": group " + std::to_string(g) + " is outside 0.." + std::to_string(s.groups - 1));
  GroupOrder out;
  if (!std::is_sorted(s.group_of.begin(), s.group_of.end())) {
    auto columns = std::make_shared<std::vector<int32_t>>(size_t(s.cols));
    std::iota(columns->begin(), columns->end(), 0);
    std::stable_sort(columns->begin(), columns->end(), [&](int32_t a, int32_t b) { return s.group_of[size_t(a)] < s.group_of[size_t(b)]; });
    out.columns = std::move(columns);
  }
  const auto group = [&](int64_t i) { return s.group_of[size_t(out.columns ? (*out.columns)[size_t(i)] : i)]; };
  for (const int unit : {128, 64, 32}) {
    bool whole = s.cols % unit == 0;
    for (int64_t i = 1; whole && i < s.cols; ++i) whole = group(i) == group(i - 1) || i % unit == 0;
    if (!whole) continue;
    out.unit = unit;
    return out;
  }
  return Error{ErrorCode::kUnsupported, shown(name) + ": its groups of inputs are no multiples of 32, which kernels here take", {}};
}

const quant::WeightFormat* grouped_format(int bits, int unit) {
  static constexpr WeightType kTypes[2][3] = {{WeightType::kInt4_32, WeightType::kInt4_64, WeightType::kInt4_128},
                                              {WeightType::kInt8_32, WeightType::kInt8_64, WeightType::kInt8_128}};
  return quant::find_format(kTypes[bits <= 4 ? 0 : 1][unit == 32 ? 0 : unit == 64 ? 1 : 2]);
}

}  // namespace sluice::format
