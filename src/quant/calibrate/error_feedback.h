// Rounding with error feedback (GPTQ, arXiv:2210.17323): columns are rounded one after another, and each one's error is made good as far as
// it goes by those that follow, in the sense of the outputs' error e H e^T.
//
// With H = U^T U (U upper triangular) that error is |U e|^2, whose entry j depends on e_j and later entries alone. Going from the last
// entry to the first, each is rounded to what is nearest to its weight plus what the errors after it ask for: the same as the
// method's updates by the inverse of H, without inverting anything (nearest plane; arXiv:2507.18553).
//
// Columns are taken in order of their importance (activation order), or as they stand. Pure; threads by `parallel`.
#pragma once
#include <vector>

#include "base/result.h"
#include "quant/calibrate/hessian.h"
#include "quant/grouped.h"
#include "quant/weight_format.h"

namespace sluice::quant {

struct FeedbackOptions {
  bool act_order = true;   // columns of large inputs first, while others can still make up for them
  float damp = 0.01f;      // of the mean of H's diagonal, added to it
};

// The factor U of a damped, reordered H: K x K floats. Entry j stands for column column_at[j]; the last is rounded first.
struct FeedbackFactor {
  int cols = 0;
  std::vector<int32_t> column_at;
  std::vector<float> upper;
};

// Errors: kInvalidArgument where H has a number that is none, or no damping makes it positive.
Result<FeedbackFactor> factorize(const Hessian& hessian, const FeedbackOptions& options, const Parallel& parallel);

// Rows of a block format: scales and offsets are first fitted with `importance` ([K]), then levels rounded with feedback.
// w: [rows, K]; dst: rows of the format.
void feedback_rows(const WeightFormat& format, const FeedbackFactor& factor, const float* w, const std::vector<float>& importance, int rows, uint8_t* dst);

struct GptqOptions {
  int bits = 4;            // 2..8
  int group = 128;         // columns that share a scale and zero, in the order of rounding; at most 256
  bool symmetric = false;
};
// Groups' scales and zeros are fitted as the rounding reaches them, to weights that have made up for the columns before.
// Errors: kInvalidArgument naming the option.
Result<GroupedMatrix> gptq(const float* w, int rows, const FeedbackFactor& factor, const GptqOptions& options, const Parallel& parallel);

// Codes of e4m3; scales are of each block's largest weight, as round_fp8 has them. w: [rows, K].
Fp8Matrix feedback_fp8(const float* w, int rows, int block_rows, int block_cols, const FeedbackFactor& factor, const Parallel& parallel);

// Rounds a matrix again, with feedback: its groups' scales and zeros stay as they are, and so do the groups' columns.
void feedback_codes(GroupedMatrix& m, const float* w, const FeedbackFactor& factor, const Parallel& parallel);

// The factor for columns that are fed x / s in the place of x.
void scale_inputs(FeedbackFactor& factor, const std::vector<float>& s);

}  // namespace sluice::quant
