#include "quant/calibrate/block_choice.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/half.h"
#include "quant/fit.h"

namespace sluice::quant {
namespace {

constexpr size_t kRowsTogether = 8;  // whose errors' products are taken at once
constexpr int kOthers = 4;           // roundings of a group besides the best alone
constexpr float kAlone = 0.3f;       // of the mean squares, counted column by column beside the sample's sums: in a few rows columns go together by chance
// A block with a scale of its own: its grid a little narrower and wider.
constexpr float kStretches[kOthers] = {0.97f, 1.03f, 0.95f, 1.05f};
// A group with integer codes: those next to its own.
struct Step {
  int scale, offset;
};
constexpr Step kScaleSteps[kOthers] = {{-1, 0}, {1, 0}, {-2, 0}, {2, 0}}, kBothSteps[kOthers] = {{-1, 0}, {1, 0}, {0, -1}, {0, 1}};

float rounded(float v) { return half_to_float(float_to_half(v)); }

// Another rounding of group g of a block. False: there is none.
bool vary(const BlockShape& shape, const float* x, int g, int which, BlockCodes& c) {
  if (shape.integer_scales()) {
    const Step step = shape.has_offset ? kBothSteps[which] : kScaleSteps[which];
    const int scale = c.scale[g] + step.scale, offset = c.offset[g] + step.offset;
    if (scale < shape.min_scale || scale > shape.max_scale || offset < 0 || offset > shape.max_offset) return false;
    c.scale[g] = int8_t(scale), c.offset[g] = uint8_t(offset);
  } else {
    c.d = rounded(c.d * kStretches[which]), c.m = rounded(c.m * kStretches[which]);
    if (!std::isfinite(c.d) || !std::isfinite(c.m)) return false;
  }
  const float scale = scale_of(shape, c, g), offset = offset_of(shape, c, g), inverse = 1 / scale;
  if (!std::isfinite(inverse)) return false;
  for (int k = g * shape.group; k < (g + 1) * shape.group; ++k) c.level[k] = int8_t(nearest_level(shape, (x[k] - offset) * inverse));
  return true;
}

void values_of(const BlockShape& shape, const BlockCodes& c, int g, float* out) {
  const float scale = scale_of(shape, c, g), offset = offset_of(shape, c, g);
  for (int k = 0; k < shape.group; ++k) out[k] = scale * shape.level_value(c.level[g * shape.group + k]) + offset;
}

// Rows side by side, their groups one after another.
class Rows {
 public:
  Rows(const WeightFormat& format, const float* importance, const InputSample& sample, size_t cols)
      : f_(format), shape_(*format.shape), importance_(importance), sample_(sample), cols_(cols), blocks_(cols / size_t(shape_.elements)), count_(size_t(sample.count())),
        group_(size_t(shape_.group)), codes_(kRowsTogether * blocks_), others_(kRowsTogether * kOthers), errors_(kRowsTogether * cols), sums_(kRowsTogether * count_),
        changes_(kRowsTogether * kOthers * group_), vectors_(kRowsTogether * kOthers * count_), was_(group_), unseen_(cols) {
    for (size_t k = 0; k < cols; ++k) unseen_[k] = std::max(0.0f, importance[k] * float(sample.kept()) - sample.squares()[k]) + kAlone * importance[k] * float(sample.kept());
  }

  // x: [rows, cols], kRowsTogether at most.
  void run(const float* x, size_t rows, uint8_t* dst) {
    begin(x, rows);
    for (size_t b = 0; b < blocks_; ++b) {
      for (int g = 0; g < shape_.groups(); ++g) choose(x, rows, b, g);
      for (size_t i = 0; i < rows; ++i) f_.pack(codes(i, b), dst + (i * blocks_ + b) * size_t(f_.block_bytes));
    }
  }

 private:
  BlockCodes& codes(size_t row, size_t block) { return codes_[row * blocks_ + block]; }

  // Each group the best alone, and what that does to outputs.
  void begin(const float* x, size_t rows) {
    for (size_t i = 0; i < rows; ++i) {
      fit_codes(shape_, x + i * cols_, importance_, cols_, &codes(i, 0));
      float* e = &errors_[i * cols_];
      for (size_t b = 0; b < blocks_; ++b)
        for (int g = 0; g < shape_.groups(); ++g) values_of(shape_, codes(i, b), g, e + b * size_t(shape_.elements) + size_t(g) * group_);
      for (size_t k = 0; k < cols_; ++k) e[k] -= x[i * cols_ + k];
    }
    fit_kernels().products->combine(sums_.data(), errors_.data(), cols_, sample_.columns(), int(rows), int(cols_), int(count_));
  }

  // Of each row the rounding of one group that leaves its outputs nearest, those of the others given.
  void choose(const float* x, size_t rows, size_t b, int g) {
    const size_t block = b * size_t(shape_.elements), column = block + size_t(g) * group_;
    for (size_t i = 0; i < rows; ++i) {
      values_of(shape_, codes(i, b), g, was_.data());
      for (int o = 0; o < kOthers; ++o) {
        BlockCodes& c = others_[i * kOthers + size_t(o)] = codes(i, b);
        float* change = &changes_[(i * kOthers + size_t(o)) * group_];
        if (vary(shape_, x + i * cols_ + block, g, o, c)) values_of(shape_, c, g, change);
        else std::copy(was_.begin(), was_.end(), change);
        float& cost = costs_[i * kOthers + size_t(o)] = 0;
        for (size_t k = 0; k < group_; ++k) {
          const float w = x[i * cols_ + column + k], now = change[k] - w, before = was_[k] - w;
          cost += unseen_[column + k] * (now * now - before * before);
          change[k] -= was_[k];
        }
      }
    }
    const ProductKernels& p = *fit_kernels().products;
    p.combine(vectors_.data(), changes_.data(), group_, sample_.columns() + column * count_, int(rows) * kOthers, int(group_), int(count_));
    for (size_t i = 0; i < rows; ++i)
      if (const int o = p.shorten(sums_.data() + i * count_, vectors_.data() + i * kOthers * count_, count_, &costs_[i * kOthers], kOthers, int(count_)); o >= 0) codes(i, b) = others_[i * kOthers + size_t(o)];
  }

  const WeightFormat& f_;
  const BlockShape& shape_;
  const float* importance_;
  const InputSample& sample_;
  size_t cols_, blocks_, count_, group_;
  std::vector<BlockCodes> codes_, others_;
  std::vector<float> errors_, sums_, changes_, vectors_, was_;
  std::vector<float> unseen_;  // [cols] what counts column by column: of the text's squares what the sample lacks, and kAlone of all
  float costs_[kRowsTogether * kOthers];
};

}  // namespace

void fit_together(const WeightFormat& format, const float* src, const float* importance, const InputSample& sample, uint8_t* dst, size_t rows, size_t cols) {
  Rows together(format, importance, sample, cols);
  for (size_t row = 0; row < rows; row += kRowsTogether)
    together.run(src + row * cols, std::min(kRowsTogether, rows - row), dst + row * row_bytes(format, cols));
}

}  // namespace sluice::quant
