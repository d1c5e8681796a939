// Rounding to nearest with groups' scales and zeros that are searched for: scales that leave the largest weights out are among the
// starts, and none is worse than the one that just spans a group. Pure; threads by `parallel`.
#pragma once
#include "quant/calibrate/parallel.h"
#include "quant/grouped.h"

namespace sluice::quant {

// The least sum of importance[k] * error^2 of each group. importance: [cols], or nullptr where nothing is known; then an error counts
// 1 + x^2 / mean x^2 of its group, as in fit.h. w: [rows, cols], group <= 256.
GroupedMatrix fit_grouped(const float* w, int rows, int cols, int bits, int group, bool symmetric, const float* importance, const Parallel& parallel);

}  // namespace sluice::quant
