// What goes before a product when the product does not do it itself: rows normalised, gated or as they are, rounded to the type
// that the product multiplies.
#include "kernels/cuda/half_types.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/products.h"
#include "kernels/cuda/prologue.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kThreads = kPrologueThreads;

template <class H, int parts, int held>
__global__ void __launch_bounds__(kThreads) halves_kernel(LinearArgs a, int cols, H* inputs) {
  let_next_begin();
  wait_for_previous();
  H* row = inputs + size_t(blockIdx.x) * cols;
  const size_t part_stride = size_t(gridDim.x) * cols;
  const float* x = static_cast<const float*>(a.x.data) + size_t(blockIdx.x) * a.x_stride;
  prepare_row<held>(a.prologue, x, cols, a.norm_weight, a.eps, blockIdx.y, gridDim.y, [&](int k, const float v[8]) {
    store_parts<H, parts>(row + k, part_stride, v);
  });
}

// Without a norm, elements stand alone: a thread takes eight of each of `rows` rows, all on their way at once.
template <class X, class H, int rows>
__global__ void __launch_bounds__(kThreads) gate_kernel(LinearArgs a, int cols, H* inputs) {
  let_next_begin();
  const int k = int(blockIdx.x * kThreads + threadIdx.x) * 8, first = int(blockIdx.y) * rows, last = a.num_tokens - 1;
  wait_for_previous();
  if (k >= cols) return;
  const X* x = static_cast<const X*>(a.x.data) + k;
  float v[rows][8], up[rows][8];
#pragma unroll
  for (int r = 0; r < rows; ++r) {
    const X* from = x + size_t(min(first + r, last)) * a.x_stride;
    load8(from, v[r]);
    if (a.prologue != Prologue::kNone) load8(from + cols, up[r]);
  }
#pragma unroll
  for (int r = 0; r < rows; ++r) {
    if (first + r > last) return;
    if (a.prologue != Prologue::kNone) {
#pragma unroll
      for (int i = 0; i < 8; ++i) v[r][i] = gated(a.prologue, v[r][i], up[r][i]);
    }
    store_parts<H, 1>(inputs + size_t(first + r) * cols + k, 0, v[r]);
  }
}

template <class X, class H>
void launch_gate(CudaContext* c, const LinearArgs& a, int cols, H* to) {
  constexpr int kMany = 512, kRows = 4;  // tokens from which on there are threads enough with some rows each
  const int rows = a.num_tokens >= kMany ? kRows : 1;
  const dim3 grid(unsigned((cols / 8 + kThreads - 1) / kThreads), unsigned((a.num_tokens + rows - 1) / rows));
  note(c, launch_early({c, a.num_tokens}, grid, kThreads, 0, rows == 1 ? gate_kernel<X, H, 1> : gate_kernel<X, H, kRows>, a, cols, to));
}

template <class H, int parts>
void launch_rows(CudaContext* c, const LinearArgs& a, int cols, H* to) {
  // Only a norm needs the whole row in one block.
  const int shares = a.prologue == Prologue::kRmsNorm ? 1 : (cols + kPrologueStep - 1) / kPrologueStep;
  const dim3 grid(unsigned(a.num_tokens), unsigned(shares));
  const auto kernel = cols <= kPrologueStep ? halves_kernel<H, parts, 1> : cols <= 2 * kPrologueStep ? halves_kernel<H, parts, 2> : halves_kernel<H, parts, 4>;
  note(c, launch_early({c, a.num_tokens}, grid, kThreads, 0, kernel, a, cols, to));
}

template <class H>
void prepare(CudaContext* c, const LinearArgs& a, int cols, int parts, H* to) {
  if (parts != 1) launch_rows<H, 3>(c, a, cols, to);
  else if (a.x.type != DType::kF32) launch_gate<H>(c, a, cols, to);
  else if (a.prologue != Prologue::kRmsNorm) launch_gate<float>(c, a, cols, to);
  else launch_rows<H, 1>(c, a, cols, to);
}

}  // namespace

void prepare_halves(CudaContext* c, WeightType type, const LinearArgs& a, int cols, int parts) noexcept {
  if (half_of(type) == DType::kF16) prepare(c, a, cols, parts, reinterpret_cast<__half*>(c->inputs));
  else prepare(c, a, cols, parts, reinterpret_cast<__nv_bfloat16*>(c->inputs));
}

Halves half_inputs(CudaContext* c, WeightType type, const LinearArgs& a, int cols) noexcept {
  if (a.prologue == Prologue::kNone && a.x.type == half_of(type)) return {a.x.data, a.x_stride};
  prepare_halves(c, type, a, cols, 1);
  return {c->inputs, cols};
}

}  // namespace sluice::kernels::cuda
