// A linear's inputs as the product sees them: LinearArgs' prologue applied to one row. For those who look at inputs (calibration);
// kernels do the same within their own work. Host memory; any thread.
#pragma once
#include "kernels/abi.h"

namespace sluice::lab {

// Row t of args, as float32 [K]: args.out[0].weight.cols of them.
void layer_input_row(const kernels::LinearArgs& args, int t, float* out);
// y = x / sqrt(mean(x^2) + eps) * weight.
void norm_row(const float* x, const float* weight, float eps, int n, float* out);

}  // namespace sluice::lab
