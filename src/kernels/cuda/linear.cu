// Products. The prologue leaves float32 inputs in scratch memory, rows padded with zeros to whole groups of 32. Few tokens: a
// warp an output row, weights decoded in registers and multiplied in float32, the same order for any number of tokens. Many
// tokens: tiles of 64 x 64 on the tensor cores in tf32 (both factors rounded to 11 bits, sums in float32), weights decoded
// into shared memory. A deterministic context takes the first way always.
#include <mma.h>

#include <algorithm>

#include "kernels/cuda/cuda_context.h"
#include "kernels/cuda/decode.cuh"
#include "kernels/cuda/reduce.cuh"
#include "quant/weight_format.h"

namespace sluice::kernels::cuda {
namespace {

constexpr int kFewTokens = 16;   // up to here, the first way
constexpr int kPassTokens = 8;   // tokens that share one decoding of a row there
constexpr int kRowWarps = 4;
constexpr int kTile = 64, kDepth = 32, kPitch = kDepth + 4;
constexpr int kTileThreads = 128;

struct Output {
  const uint8_t* weight;
  size_t row_bytes;
  const float* bias;
  float* y;
  int rows, y_stride;
  bool accumulate;
};

struct Product {
  const float* x;  // x_stride floats a row, at least cols rounded up to 32 of them when padded
  int x_stride, tokens, cols;
  Output out[kMaxLinearOutputs];
};

__global__ void prologue_kernel(LinearArgs a, int cols, float* inputs, int stride) {
  const float* x = a.x + size_t(blockIdx.x) * a.x_stride;
  float* y = inputs + size_t(blockIdx.x) * stride;
  float factor = 1;
  if (a.prologue == Prologue::kRmsNorm) {
    double sum = 0;
    for (int k = threadIdx.x; k < cols; k += blockDim.x) sum += double(x[k]) * x[k];
    factor = float(1.0 / sqrt(block_sum(sum) / cols + a.eps));
  }
  for (int k = threadIdx.x; k < stride; k += blockDim.x) {
    float v = 0;
    if (k < cols) {
      v = x[k];
      switch (a.prologue) {
        case Prologue::kNone: break;
        case Prologue::kRmsNorm: v = v * factor * (a.norm_weight ? a.norm_weight[k] : 1.0f); break;
        case Prologue::kSiluMul: v = v / (1.0f + expf(-v)) * x[cols + k]; break;
        case Prologue::kGeluMul: {  // 0.5 (1 + tanh u) = 1 / (1 + exp(-2u)), which cancels nothing
          const float u = 0.7978845608028654f * (v + 0.044715f * v * v * v);
          v = v / (1.0f + expf(-2.0f * u)) * x[cols + k];
          break;
        }
      }
    }
    y[k] = v;
  }
}

__device__ inline void store(const Output& o, int t, int n, float v) {
  if (o.bias) v += o.bias[n];
  float& y = o.y[size_t(t) * o.y_stride + n];
  y = o.accumulate ? y + v : v;
}

template <WeightType type, int tokens>
__global__ void __launch_bounds__(kRowWarps * 32) rows_kernel(const __grid_constant__ Product p) {
  const Output& o = p.out[blockIdx.z];
  const int n = blockIdx.x * kRowWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
  if (n >= o.rows) return;
  const int first = blockIdx.y * tokens, count = min(tokens, p.tokens - first);
  const uint8_t* row = o.weight + size_t(n) * o.row_bytes;
  const float* x = p.x + size_t(first) * p.x_stride;
  const bool whole = p.cols % 8 == 0;
  float sum[tokens] = {};
  for (int k = lane * 8; k < p.cols; k += 256) {
    float w[8];
    decode8<type>(row, k, p.cols, whole, w);
#pragma unroll
    for (int t = 0; t < tokens; ++t) {
      if (t < count) {
        const auto* in = reinterpret_cast<const float4*>(x + size_t(t) * p.x_stride + k);
        const float4 a = in[0], b = in[1];
        float s = sum[t];
        s = fmaf(w[0], a.x, s), s = fmaf(w[1], a.y, s), s = fmaf(w[2], a.z, s), s = fmaf(w[3], a.w, s);
        s = fmaf(w[4], b.x, s), s = fmaf(w[5], b.y, s), s = fmaf(w[6], b.z, s), s = fmaf(w[7], b.w, s);
        sum[t] = s;
      }
    }
  }
#pragma unroll
  for (int t = 0; t < tokens; ++t) {
    const float s = warp_sum(sum[t]);
    if (lane == 0 && t < count) store(o, first + t, n, s);
  }
}

template <WeightType type>
__global__ void __launch_bounds__(kTileThreads) tile_kernel(const __grid_constant__ Product p) {
  namespace wmma = nvcuda::wmma;
  __shared__ __align__(32) float tile[2 * kTile * kPitch];  // inputs, then weights; the sums after the last step
  const Output& o = p.out[blockIdx.z];
  const int n0 = blockIdx.x * kTile, t0 = blockIdx.y * kTile, warp = threadIdx.x / 32;
  if (n0 >= o.rows) return;
  float* const inputs = tile;
  float* const weights = tile + kTile * kPitch;
  const bool whole = p.cols % 8 == 0;
  const int wt = warp / 2 * 32, wn = warp % 2 * 32;  // this warp's quarter
  wmma::fragment<wmma::accumulator, 16, 16, 8, float> sums[2][2];
  for (auto& row : sums)
    for (auto& s : row) wmma::fill_fragment(s, 0.0f);
  for (int k0 = 0; k0 < p.cols; k0 += kDepth) {
    for (int i = threadIdx.x; i < kTile * kDepth / 8; i += kTileThreads) {
      const int r = i / (kDepth / 8), k = i % (kDepth / 8) * 8;
      float4 a{}, b{};
      if (t0 + r < p.tokens) {
        const auto* in = reinterpret_cast<const float4*>(p.x + size_t(t0 + r) * p.x_stride + k0 + k);
        a = in[0], b = in[1];
      }
      auto* to = reinterpret_cast<float4*>(inputs + r * kPitch + k);
      to[0] = a, to[1] = b;
      float w[8] = {};
      if (n0 + r < o.rows && k0 + k < p.cols) decode8<type>(o.weight + size_t(n0 + r) * o.row_bytes, k0 + k, p.cols, whole, w);
      to = reinterpret_cast<float4*>(weights + r * kPitch + k);
      to[0] = {w[0], w[1], w[2], w[3]}, to[1] = {w[4], w[5], w[6], w[7]};
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < kDepth; k += 8) {
      wmma::fragment<wmma::matrix_a, 16, 16, 8, wmma::precision::tf32, wmma::row_major> a[2];
      wmma::fragment<wmma::matrix_b, 16, 16, 8, wmma::precision::tf32, wmma::col_major> b[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        wmma::load_matrix_sync(a[i], inputs + (wt + 16 * i) * kPitch + k, kPitch);
        wmma::load_matrix_sync(b[i], weights + (wn + 16 * i) * kPitch + k, kPitch);
        for (int e = 0; e < a[i].num_elements; ++e) a[i].x[e] = wmma::__float_to_tf32(a[i].x[e]);
        for (int e = 0; e < b[i].num_elements; ++e) b[i].x[e] = wmma::__float_to_tf32(b[i].x[e]);
      }
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int j = 0; j < 2; ++j) wmma::mma_sync(sums[i][j], a[i], b[j], sums[i][j]);
    }
    __syncthreads();
  }
  constexpr int kSumPitch = kTile + 4;
  static_assert(kTile * kSumPitch <= 2 * kTile * kPitch);
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j)
      wmma::store_matrix_sync(tile + (wt + 16 * i) * kSumPitch + wn + 16 * j, sums[i][j], kSumPitch, wmma::mem_row_major);
  __syncthreads();
  for (int i = threadIdx.x; i < kTile * kTile; i += kTileThreads) {
    const int t = i / kTile, n = i % kTile;
    if (t0 + t < p.tokens && n0 + n < o.rows) store(o, t0 + t, n0 + n, tile[t * kSumPitch + n]);
  }
}

template <WeightType type>
void launch(const CudaContext* c, const Product& p, int outputs) {
  int rows = 0;
  for (int i = 0; i < outputs; ++i) rows = std::max(rows, p.out[i].rows);
  if (!c->deterministic && p.tokens > kFewTokens) {
    const dim3 grid((rows + kTile - 1) / kTile, (p.tokens + kTile - 1) / kTile, outputs);
    tile_kernel<type><<<grid, kTileThreads, 0, c->stream>>>(p);
    return;
  }
  const int blocks = (rows + kRowWarps - 1) / kRowWarps;
  if (p.tokens == 1) {
    rows_kernel<type, 1><<<dim3(blocks, 1, outputs), kRowWarps * 32, 0, c->stream>>>(p);
  } else {
    const dim3 grid(blocks, (p.tokens + kPassTokens - 1) / kPassTokens, outputs);
    rows_kernel<type, kPassTokens><<<grid, kRowWarps * 32, 0, c->stream>>>(p);
  }
}

}  // namespace

void linear(Context* context, const LinearArgs& a) noexcept {
  CudaContext* c = of(context);
  if (a.num_tokens <= 0 || a.num_outputs <= 0 || !begin(c)) return;
  Product p{};
  p.tokens = a.num_tokens;
  p.cols = a.out[0].weight.cols;
  const bool as_it_is = a.prologue == Prologue::kNone && p.cols % kDepth == 0 && a.x_stride % 4 == 0 &&
                        reinterpret_cast<uintptr_t>(a.x) % 16 == 0;
  p.x = as_it_is ? a.x : c->inputs;
  p.x_stride = as_it_is ? a.x_stride : (p.cols + kDepth - 1) / kDepth * kDepth;
  if (!as_it_is) prologue_kernel<<<a.num_tokens, 256, 0, c->stream>>>(a, p.cols, c->inputs, p.x_stride);
  // One launch for neighbours of one type.
  for (int i = 0, n = 0; i < a.num_outputs; i += n) {
    const WeightType type = a.out[i].weight.type;
    const size_t row_bytes = quant::row_bytes(*quant::find_format(type), size_t(p.cols));
    for (n = 0; i + n < a.num_outputs && a.out[i + n].weight.type == type; ++n) {
      const LinearOutput& o = a.out[i + n];
      p.out[n] = {static_cast<const uint8_t*>(o.weight.data), row_bytes, o.bias, o.y, o.weight.rows, o.y_stride, o.accumulate};
    }
    with_type(type, [&]<WeightType w>() { launch<w>(c, p, n); });
  }
  note(c, cudaGetLastError());
}

}  // namespace sluice::kernels::cuda
