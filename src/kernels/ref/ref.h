// The reference backend's parts: plain loops over float32 weights, written to be read. Sums that decide accuracy are in
// double; dot products keep 16 partial sums in a fixed order so that compilers can vectorise them. A token's result is the
// same for any T and any number of threads because every output element is one such loop.
#pragma once
#include "kernels/abi.h"

namespace sluice::kernels::ref {

size_t packed_bytes(WeightType type, int rows, int cols) noexcept;
void pack(WeightType type, int rows, int cols, const void* src, void* dst, int row_begin, int row_end) noexcept;
void linear(Context* c, const LinearArgs& a) noexcept;
bool gates(const Context* c, const PackedWeight& gate, const PackedWeight& up, const PackedWeight& down, int num_tokens, DType* y) noexcept;
void norm(Context* c, const NormArgs& a) noexcept;
void rope_append(Context* c, const RopeAppendArgs& a) noexcept;
void attention(Context* c, const AttentionArgs& a) noexcept;

// y = x / sqrt(mean(x^2) + eps) * weight over n elements; y may be x. Null weight: ones.
void rms_norm_row(const float* x, const float* weight, float eps, int n, float* y);

}  // namespace sluice::kernels::ref
