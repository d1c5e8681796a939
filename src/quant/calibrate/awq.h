// Activation-aware scales (AWQ, arXiv:2306.00978). Columns that are fed large inputs are multiplied by s before rounding and their inputs
// divided by it, which whatever comes before the product can take into its own weights: the rounding error of what matters shrinks,
// that of the rest grows. s = (mean |x|)^a, a the best of a grid by the outputs' error on a sample of inputs.
// Clipping is part of the groups' search (grouped_fit.h). Pure.
#pragma once
#include <span>
#include <vector>

#include "quant/calibrate/parallel.h"
#include "quant/grouped.h"

namespace sluice::quant {

struct MatrixView { const float* w = nullptr; int rows = 0; };  // [rows, K]

struct AwqSearch {
  int bits = 4, group = 128;
  int steps = 20;                // of a, from 0 (no scaling) to 1
  int max_rows = 512;            // of each matrix that are tried, evenly over it
};
// One factor a column, above 0, their geometric middle 1, for matrices that share their inputs. mean_abs: [K]; sample: [count, K].
std::vector<float> awq_scales(std::span<const MatrixView> matrices, std::span<const float> mean_abs, const float* sample, int count, const AwqSearch& search, const Parallel& parallel);

}  // namespace sluice::quant
