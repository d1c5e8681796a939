// Products of the CUDA backend on the emulator, in orders that seeds decide: inputs are small whole numbers, so that results are exact. A test includes the source
// of a kernel before this, and has one kernel.
#pragma once
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <vector>

#include "base/rng.h"
#include "kernels/cuda/gate.cuh"
#include "kernels/cuda/half_types.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/products.h"
#include "kernels/cuda/tensor_map.h"

namespace sluice::kernels::cuda {

namespace {

uint16_t bits_of(WeightType type, float v) { return type == WeightType::kF16 ? float_to_half(v) : type == WeightType::kBF16 ? float_to_bf16(v) : float_to_e4m3(v); }
float value_of(DType type, const void* data, size_t i) {
  switch (type) {
    case DType::kF32: return static_cast<const float*>(data)[i];
    case DType::kF16: return half_to_float(static_cast<const uint16_t*>(data)[i]);
    case DType::kBF16: return bf16_to_float(static_cast<const uint16_t*>(data)[i]);
  }
  return 0;
}

struct Case {
  WeightType type;
  int tokens, rows, cols;
  DType result;
  bool bias, accumulate;
  Gate gate = Gate::kNone;
};

// A matrix of small whole numbers and its bytes in a type.
struct Matrix {
  std::vector<float> values;
  std::vector<uint8_t> bytes;
  Matrix(Rng& rng, WeightType type, int rows, int cols) {
    for (int i = 0; i < rows * cols; ++i) {
      values.push_back(float(int(rng.below(5)) - 2));
      const uint16_t v = bits_of(type, values.back());
      bytes.push_back(uint8_t(v));
      if (!is_fp8(type)) bytes.push_back(uint8_t(v >> 8));
    }
  }
};

using Takes = bool (*)(const CudaContext*, WeightType, const Product&) noexcept;
using Multiply = void (*)(CudaContext*, WeightType, const Product&, const LinearArgs&) noexcept;

void holds(Takes takes, Multiply multiply, const Case& c, uint64_t seed) {
  Rng rng(seed);
  const bool is_gated = c.gate != Gate::kNone;
  const int width = is_fp8(c.type) ? 1 : 2, weights = is_gated ? 2 : 1;
  const Matrix x(rng, c.type, c.tokens, c.cols), w(rng, c.type, weights * c.rows, c.cols);
  std::vector<float> scales(size_t(weights * c.rows)), token_scales(size_t(c.tokens)), bias(size_t(c.rows));
  for (float& v : scales) v = is_fp8(c.type) ? std::ldexp(1.0f, int(rng.below(3)) - 3) : 1;
  for (float& v : token_scales) v = is_fp8(c.type) ? std::ldexp(1.0f, int(rng.below(3)) - 2) : 1;
  for (float& v : bias) v = c.bias ? float(rng.below(7)) : 0;
  constexpr int kBeyond = 8;  // a row of results is longer than its product
  const int stride = c.rows + kBeyond;
  std::vector<float> before(size_t(c.tokens + 1) * size_t(stride), 3.0f);
  std::vector<uint8_t> y(before.size() * size_t(dtype_bytes(c.result)));
  for (size_t i = 0; i < before.size(); ++i) {
    const uint16_t half = c.result == DType::kF16 ? float_to_half(3.0f) : float_to_bf16(3.0f);
    if (c.result == DType::kF32) std::memcpy(&y[4 * i], &before[i], 4);
    else std::memcpy(&y[2 * i], &half, 2);
  }
  CudaContext context{};
  context.processors = 132, context.can = capability(90, 90, 227 * 1024), context.parts = token_scales.data();
  Product p{c.tokens, c.cols, weights, {}, c.gate};
  for (int i = 0; i < weights; ++i)
    p.out[i] = {w.bytes.data() + size_t(i) * size_t(c.rows) * size_t(c.cols * width), size_t(c.cols * width), c.bias ? bias.data() : nullptr, reinterpret_cast<float*>(y.data()), c.rows, stride,
                c.accumulate, c.result, is_fp8(c.type) ? scales.data() + i * c.rows : nullptr, is_fp8(c.type) ? c.cols : 0};
  ASSERT_TRUE(takes(&context, c.type, p));
  // Inputs are the kernel ahead's results.
  std::vector<uint8_t> inputs(x.bytes.size(), 0x5A);
  emulator::ahead_ends = [&] { inputs = x.bytes; };
  emulator::launch_seed = seed;
  LinearArgs a;
  a.num_tokens = c.tokens, a.x = {inputs.data(), DType::kBF16}, a.x_stride = c.cols;
  multiply(&context, c.type, p, a);
  ASSERT_EQ(context.error, cudaSuccess) << "seed " << seed;
  int wrong = 0;
  for (int t = 0; t <= c.tokens; ++t)
    for (int n = 0; n < stride; ++n) {
      float want = 3;
      if (t < c.tokens && n < c.rows) {
        float sums[2] = {};
        for (int i = 0; i < weights; ++i) {
          for (int k = 0; k < c.cols; ++k) sums[i] += x.values[size_t(t * c.cols + k)] * w.values[size_t((i * c.rows + n) * c.cols + k)];
          sums[i] = sums[i] * token_scales[size_t(t)] * scales[size_t(i * c.rows + n)] + bias[size_t(n)];
        }
        want = is_gated ? gated(c.gate, sums[0], sums[1]) : sums[0] + (c.accumulate ? 3 : 0);
      }
      const float got = value_of(c.result, y.data(), size_t(t) * size_t(stride) + size_t(n)), slack = c.result == DType::kF32 && !is_gated ? 0 : std::abs(want) / 128 + 1e-7f;
      if (!(std::abs(got - want) <= slack) && ++wrong < 4) ADD_FAILURE() << "seed " << seed << ", token " << t << ", row " << n << ": " << got << " for " << want;
    }
  EXPECT_EQ(wrong, 0);
}

// So many seeds: SLUICE_SEEDS=n.
void holds(Takes takes, Multiply multiply, const Case& c) {
  const char* n = std::getenv("SLUICE_SEEDS");
  const uint64_t seeds = n ? std::strtoull(n, nullptr, 10) : 3;
  for (uint64_t seed = 1; seed <= seeds; ++seed) holds(takes, multiply, c, seed);
}

}  // namespace
}  // namespace sluice::kernels::cuda
