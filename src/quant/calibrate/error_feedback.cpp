#include "quant/calibrate/error_feedback.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/fp8.h"
#include "base/half.h"
#include "quant/fit.h"
#include "quant/search/fit_kernels.h"

namespace sluice::quant {
namespace {

constexpr int kWidth = 128;  // columns that are rounded between two products with the factor, where groups do not say

// kLanes rows on their way: weights and errors in the factor's order of entries.
class Rows {
 public:
  Rows(const FeedbackFactor& f, const float* w, int count) : f_(f), k_(size_t(f.cols)), w_(k_ * kLanes), errors_(k_ * kLanes) {
    for (int l = 0; l < kLanes; ++l)
      for (size_t j = 0; j < k_; ++j) w_[j * kLanes + size_t(l)] = l < count ? w[size_t(l) * k_ + size_t(f.column_at[j])] : 0;
  }

  // What errors beyond entries [begin, end) ask of those: [end - begin][kLanes].
  const float* pull_of(int begin, int end) {
    const int n = end - begin, rest = f_.cols - end;
    std::vector<float> sums(size_t(kLanes) * size_t(n));
    if (rest > 0)
      fit_kernels().products->add(sums.data(), size_t(n), &errors_[size_t(end)], k_, &f_.upper[size_t(begin) * k_ + size_t(end)], k_, kLanes, n, rest, 1);
    pull_.assign(size_t(n) * kLanes, 0);
    for (int j = 0; j < n; ++j)
      for (int l = 0; l < kLanes; ++l) pull_[size_t(j * kLanes + l)] = sums[size_t(l * n + j)];
    return pull_.data();
  }
  // The weights of a block as they should be if none of them were rounded: those that make up for the errors so far.
  std::vector<float> adjusted(int begin, int end) const {
    const int n = end - begin;
    std::vector<float> x(size_t(n) * kLanes), shift(size_t(n) * kLanes);
    for (int j = n - 1; j >= 0; --j) {
      const float* u = &f_.upper[size_t(begin + j) * k_ + size_t(begin)];
      float s[kLanes];
      for (int l = 0; l < kLanes; ++l) s[l] = pull_[size_t(j * kLanes + l)];
      for (int i = j + 1; i < n; ++i)
        for (int l = 0; l < kLanes; ++l) s[l] -= u[i] * shift[size_t(i * kLanes + l)];
      for (int l = 0; l < kLanes; ++l) {
        shift[size_t(j * kLanes + l)] = s[l] / u[j];
        x[size_t(j * kLanes + l)] = w_[size_t((begin + j) * kLanes + l)] + s[l] / u[j];
      }
    }
    return x;
  }
  // Rounds entries [begin, begin + block.n); block has scales, offsets and the range of levels. Levels: [n][kLanes].
  const float* round(int begin, RoundBlock block) {
    level_.resize(size_t(block.n) * kLanes);
    error_.resize(size_t(block.n) * kLanes);
    block.upper = &f_.upper[size_t(begin) * k_ + size_t(begin)];
    block.stride = k_;
    block.pull = pull_.data();
    block.w = &w_[size_t(begin) * kLanes];
    block.level = level_.data();
    block.error = error_.data();
    fit_kernels().round_block(block);
    for (int j = 0; j < block.n; ++j)
      for (int l = 0; l < kLanes; ++l) errors_[size_t(l) * k_ + size_t(begin + j)] = error_[size_t(j * kLanes + l)];
    return level_.data();
  }

 private:
  const FeedbackFactor& f_;
  size_t k_;
  std::vector<float> w_, errors_;  // [K][kLanes]; [kLanes][K]
  std::vector<float> pull_, level_, error_;
};

void fill(float (&lanes)[kLanes], float v) { std::fill(std::begin(lanes), std::end(lanes), v); }

// Rounds `count` rows whose scales are known. block: the grid of levels. scale_of(l, column, scale, offset) says what a level of row l is
// worth there, take(l, column, level) is told what was chosen.
template <class ScaleOf, class Take>
void round_rows(const FeedbackFactor& f, const float* w, int count, RoundBlock block, const ScaleOf& scale_of, const Take& take) {
  Rows lanes(f, w, count);
  std::vector<float> scale(size_t(kWidth) * kLanes), offset(scale.size());
  block.scale = scale.data();
  block.offset = offset.data();
  for (int end = f.cols; end > 0; end -= kWidth) {
    const int begin = std::max(0, end - kWidth);
    block.n = end - begin;
    lanes.pull_of(begin, end);
    for (int j = 0; j < block.n; ++j)
      for (int l = 0; l < kLanes; ++l)
        scale_of(std::min(l, count - 1), f.column_at[size_t(begin + j)], scale[size_t(j * kLanes + l)], offset[size_t(j * kLanes + l)]);
    const float* level = lanes.round(begin, block);
    for (int j = 0; j < block.n; ++j)
      for (int l = 0; l < count; ++l) take(l, f.column_at[size_t(begin + j)], level[j * kLanes + l]);
  }
}

}  // namespace

void feedback_rows(const WeightFormat& format, const FeedbackFactor& f, const float* w, const std::vector<float>& importance, int rows, uint8_t* dst) {
  const BlockShape& shape = *format.shape;
  const int k = f.cols, blocks = k / shape.elements;
  const size_t stride = row_bytes(format, size_t(k));
  std::vector<BlockCodes> codes(size_t(blocks) * kLanes);
  const auto at = [&](int l, int column) -> BlockCodes& { return codes[size_t(l) * size_t(blocks) + size_t(column / shape.elements)]; };
  float lo[kLanes], hi[kLanes];
  fill(lo, float(shape.min_level));
  fill(hi, float(shape.max_level));
  RoundBlock block;
  block.lo = lo;
  block.hi = hi;
  block.codebook = shape.codebook;
  for (int r = 0; r < rows; r += kLanes) {
    const int count = std::min(kLanes, rows - r);
    for (int l = 0; l < count; ++l) fit_codes(shape, w + size_t(r + l) * size_t(k), importance.data(), size_t(k), &at(l, 0));
    round_rows(f, w + size_t(r) * size_t(k), count, block,
               [&](int l, int column, float& scale, float& offset) {
                 const int group = column % shape.elements / shape.group;
                 scale = scale_of(shape, at(l, column), group), offset = offset_of(shape, at(l, column), group);
               },
               [&](int l, int column, float v) { at(l, column).level[column % shape.elements] = int8_t(shape.codebook ? nearest_level(shape, v) : int(v)); });
    for (int l = 0; l < count; ++l)
      for (int b = 0; b < blocks; ++b) format.pack(at(l, b * shape.elements), dst + size_t(r + l) * stride + size_t(b) * size_t(format.block_bytes));
  }
}

void feedback_codes(GroupedMatrix& m, const float* w, const FeedbackFactor& f, const Parallel& parallel) {
  float lo[kLanes], hi[kLanes];
  fill(lo, 0);
  fill(hi, float((1 << m.bits) - 1));
  RoundBlock block;
  block.lo = lo;
  block.hi = hi;
  parallel((m.rows + kLanes - 1) / kLanes, [&](int task) {
    const int r = task * kLanes;
    round_rows(f, w + size_t(r) * size_t(m.cols), std::min(kLanes, m.rows - r), block,
               [&](int l, int column, float& scale, float& offset) {
                 const int group = m.group_of.empty() ? column / m.group : m.group_of[size_t(column)];
                 const size_t at = size_t(r + l) * size_t(m.groups()) + size_t(group);
                 scale = m.scales[at], offset = -m.scales[at] * float(m.zeros[at]);
               },
               [&](int l, int column, float v) { m.codes[size_t(r + l) * size_t(m.cols) + size_t(column)] = uint8_t(v); });
  });
}

void scale_inputs(FeedbackFactor& f, const std::vector<float>& s) {
  const size_t n = size_t(f.cols);
  for (size_t j = 0; j < n; ++j)
    for (size_t i = j; i < n; ++i) f.upper[j * n + i] /= s[size_t(f.column_at[i])];
}

Result<GroupedMatrix> gptq(const float* w, int rows, const FeedbackFactor& f, const GptqOptions& o, const Parallel& parallel) {
  if (o.bits < 2 || o.bits > 8) return invalid(std::to_string(o.bits) + " bits are outside 2..8", "--type");
  if (o.group < 1 || o.group > kMaxGroup) return invalid("a group of " + std::to_string(o.group) + " is outside 1.." + std::to_string(kMaxGroup), "--group");
  GroupedMatrix m;
  m.rows = rows;
  m.cols = f.cols;
  m.bits = o.bits;
  m.group = o.group;
  const int groups = m.groups();
  m.codes.resize(size_t(rows) * size_t(m.cols));
  m.scales.resize(size_t(rows) * size_t(groups));
  m.zeros.resize(size_t(rows) * size_t(groups));
  bool sorted = true;
  m.group_of.resize(size_t(m.cols));
  for (int j = 0; j < m.cols; ++j) {
    const int column = f.column_at[size_t(j)], g = (m.cols - 1 - j) / o.group;  // rounded from the last entry on
    m.group_of[size_t(column)] = g;
    sorted = sorted && g == column / o.group;
  }
  if (sorted) m.group_of.clear();
  parallel((rows + kLanes - 1) / kLanes, [&](int task) {
    const int r = task * kLanes, count = std::min(kLanes, rows - r);
    Rows lanes(f, w + size_t(r) * size_t(m.cols), count);
    std::vector<float> weights, scale, offset;
    for (int g = 0; g < groups; ++g) {
      const int end = m.cols - g * o.group, begin = std::max(0, end - o.group), n = end - begin;
      lanes.pull_of(begin, end);
      const std::vector<float> x = lanes.adjusted(begin, end);
      weights.resize(size_t(n));
      double mean = 0;
      for (int j = 0; j < n; ++j) {
        const float u = f.upper[size_t(begin + j) * size_t(m.cols) + size_t(begin + j)];
        weights[size_t(j)] = u * u;
        mean += double(u) * u / n;
      }
      for (float& v : weights) v = float(v / mean) + 1e-4f;
      float s[kLanes], z[kLanes], lo[kLanes], hi[kLanes];
      fit_kernels().long_group(x.data(), weights.data(), n, o.bits, o.symmetric, s, z);
      scale.resize(size_t(n) * kLanes);
      offset.assign(size_t(n) * kLanes, 0);
      for (int l = 0; l < kLanes; ++l) {
        lo[l] = -z[l];
        hi[l] = float((1 << o.bits) - 1) - z[l];
        for (int j = 0; j < n; ++j) scale[size_t(j * kLanes + l)] = s[l];
      }
      RoundBlock block;
      block.n = n;
      block.scale = scale.data();
      block.offset = offset.data();
      block.lo = lo;
      block.hi = hi;
      const float* level = lanes.round(begin, block);
      for (int l = 0; l < count; ++l) {
        m.scales[size_t(r + l) * size_t(groups) + size_t(g)] = s[l];
        m.zeros[size_t(r + l) * size_t(groups) + size_t(g)] = uint8_t(z[l]);
        for (int j = 0; j < n; ++j) m.codes[size_t(r + l) * size_t(m.cols) + size_t(f.column_at[size_t(begin + j)])] = uint8_t(level[j * kLanes + l] + z[l]);
      }
    }
  });
  return m;
}

Fp8Matrix feedback_fp8(const float* w, int rows, int block_rows, int block_cols, const FeedbackFactor& f, const Parallel& parallel) {
  Fp8Matrix m = round_fp8(w, rows, f.cols, block_rows, block_cols);
  const size_t k = size_t(f.cols), grid = size_t(m.scale_cols());
  RoundBlock block;
  block.e4m3 = true;
  parallel((rows + kLanes - 1) / kLanes, [&](int task) {
    const int r = task * kLanes;
    round_rows(f, w + size_t(r) * k, std::min(kLanes, rows - r), block,
               [&](int l, int column, float& scale, float& offset) { scale = m.scales[size_t((r + l) / block_rows) * grid + size_t(column / block_cols)], offset = 0; },
               [&](int l, int column, float v) { m.codes[size_t(r + l) * k + size_t(column)] = float_to_e4m3(v); });
  });
  return m;
}

}  // namespace sluice::quant
