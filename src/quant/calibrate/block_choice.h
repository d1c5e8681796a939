// Rounding that hears how columns go together. fit.h makes each group of weights the best alone, as if every column went its own way; yet
// errors of several groups add up in an output, or undo each other. So each group has a few roundings that are about as good (a grid a
// little narrower or wider, or integer codes next to its own), and group after group that one is taken with which the row's outputs on a
// sample of inputs are nearest to what they were: one round of coordinate descent on |sum over groups of errors x inputs|^2. What a column's
// mean square over the whole text is more than over the sample (few tokens have the largest inputs) counts column by column, and so does a part of all of it, since in a sample columns also go together by
// chance. A second round was measured to give a fiftieth more, twice the sample nothing.
// Pure; any thread. The same bytes for any number of rows at a time, not on machines of other instruction sets.
#pragma once
#include "quant/calibrate/input_sample.h"
#include "quant/weight_format.h"

namespace sluice::quant {

// As fit, of formats with a shape. importance: [cols], mean squares of the inputs that the sample is of.
void fit_together(const WeightFormat& format, const float* src, const float* importance, const InputSample& sample, uint8_t* dst, size_t rows, size_t cols);

}  // namespace sluice::quant
