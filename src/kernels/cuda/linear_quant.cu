// Products of tiled weights (tiled.h) with a few tokens (tiled_weights.cuh): the weights' bytes are all that counts. Two blocks a processor hide each
// other's folding. And tiled weights expanded to f16.
#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/tiled_weights.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kFusedTokens = 2, kFusedCols = 8192;  // up to here, blocks prepare their inputs themselves
constexpr size_t kInputBytes = 96 * 1024;

template <WeightType type, int tiles>
__global__ void __launch_bounds__(kFewThreads, 2) quant_kernel(const __grid_constant__ FewArgs a, int input_bytes) {
  using F = TiledWeights<type, tiles>;
  extern __shared__ __align__(128) uint8_t dynamic[];
  let_next_begin();
  uint8_t* const ring = ring_of_warp<F>(dynamic + input_bytes);
  __shared__ int queue[Tiles::kQueue];
  Tiles groups(queue, a.tickets, a.tile_end[a.p.outputs - 1], tiles_ahead<F>(a.p.cols));
  Walk<F> walk(a, groups);
  fill_ring(ring, walk);
  const auto inputs = F::place(a, dynamic);
  typename F::Summing summing(ring);
  summing.begin(a, inputs);
  multiply_tiles_of_block<F>(a, groups, summing, walk);
  if (threadIdx.x == 0) groups.leave();
}

constexpr auto bytes_of_inputs = TiledWeights<WeightType::kQ4_0, 1>::input_bytes;  // of all types alike
int tokens_a_pass(int cols) {
  int tokens = kFragmentTokens;
  while (tokens > 1 && bytes_of_inputs(tokens, cols) > kInputBytes) --tokens;
  return tokens;
}

template <WeightType type, int tiles>
void launch_quant(CudaContext* c, FewArgs a) {
  a.tickets = next_tickets(c);
  int groups = 0;
  for (int i = 0; i < a.p.outputs; ++i) a.tile_end[i] = groups += (a.p.out[i].rows + tiles * kUnitRows - 1) / (tiles * kUnitRows);
  if (a.p.gate != Gate::kNone) a.tile_end[0] = a.tile_end[1] = groups = (a.p.out[0].rows + kUnitRows - 1) / kUnitRows;
  const size_t inputs = bytes_of_inputs(a.p.tokens, a.p.cols), shared = inputs + kRingBytes<TiledWeights<type, tiles>>;
  const auto kernel = quant_kernel<type, tiles>;
  note(c, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared)));
  note(c, launch_early({c->stream, a.p.tokens}, dim3(unsigned(std::min(groups, 2 * c->processors))), kFewThreads, shared, kernel, a, int(inputs)));
}

template <WeightType type>
void multiply_quant_of(CudaContext* c, const Product& p, const LinearArgs& a) {
  FewArgs q{p, {}, nullptr, a.prologue, a.x.floats(), a.x_stride, a.norm_weight, a.eps, nullptr};
  int rows = 0;
  for (int i = 0; i < p.outputs; ++i) rows += p.out[i].rows;
  constexpr int kMost = kMostTiles<type>;
  const bool two = p.gate != Gate::kNone || (kMost == 2 && rows >= kMost * kUnitRows * c->processors * 4 / 3);
  const auto launch = two ? launch_quant<type, 2> : launch_quant<type, 1>;
  const int step = tokens_a_pass(p.cols);
  if (a.prologue == Prologue::kNone && a.x.type == DType::kF16 && a.x_stride == p.cols && p.tokens <= step) {
    q.inputs = a.x.data;
    return launch(c, q);
  }
  if (p.tokens <= kFusedTokens && p.cols <= kFusedCols && a.x.type == DType::kF32) return launch(c, q);
  prepare_halves(c, WeightType::kF16, a, p.cols, 1);
  for (int first = 0; first < p.tokens; first += step) {
    q.p.tokens = std::min(step, p.tokens - first);
    q.inputs = reinterpret_cast<const __half*>(c->inputs) + size_t(first) * p.cols;
    for (int i = 0; i < p.outputs; ++i) q.p.out[i].y = p.out[i].y_at(size_t(first) * size_t(p.out[i].y_stride));
    launch(c, q);
  }
}

// A warp a unit; a lane two rows.
template <WeightType type>
__global__ void __launch_bounds__(kFewThreads) expand_kernel(const uint8_t* tiles, int cols, int begin, int end, __half* to) {
  const int unit = (blockIdx.x * kFewThreads + threadIdx.x) / 32, lane = threadIdx.x % 32, units = units_of(cols);
  const int tile = unit / units, g = lane / 4;
  if (begin + tile * kUnitRows >= end) return;
  const uint8_t* from = tiles + size_t(begin / kUnitRows) * tile_bytes(type, cols) + size_t(unit) * unit_bytes(type);
  const uint8_t* scales = from + unit_pieces(type) * 512;
  uint32_t pieces[unit_pieces(type)][4];
#pragma unroll
  for (int p = 0; p < unit_pieces(type); ++p) {
    const uint4 v = *reinterpret_cast<const uint4*>(from + p * 512 + lane * 16);
    pieces[p][0] = v.x, pieces[p][1] = v.y, pieces[p][2] = v.z, pieces[p][3] = v.w;
  }
#pragma unroll
  for (int b = 0; b < 4; ++b) {
    const BlockScales s = scales_of<type>([&](int i) { return word_of(scales + scale_at<type>(g, i)); }, b);
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      uint32_t a[4];
      left_of<type>([&](int p, int i) { return pieces[p][i]; }, b, m, a);
      const int col = unit % units * kUnitCols + b * 32 + m * 16 + lane % 4 * 2;
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = tile * kUnitRows + g + 8 * r;
        if (begin + row >= end || col >= cols) continue;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const uint32_t pair = a[2 * i + r];
          *reinterpret_cast<uint32_t*>(to + size_t(row) * cols + col + 8 * i) =
              pair_in_range<__half>(fmaf(s.scale[m][r], half_bits(pair & 0xFFFF), -s.min[r]), fmaf(s.scale[m][r], half_bits(pair >> 16), -s.min[r]));
        }
      }
    }
  }
}

}  // namespace

int quant_passes(const Product& p) noexcept {
  const int step = tokens_a_pass(p.cols);
  return (p.tokens + step - 1) / step;
}

void multiply_quant(CudaContext* c, WeightType type, const Product& p, const LinearArgs& a) noexcept {
  with_tiled(type, [&]<WeightType t>() { multiply_quant_of<t>(c, p, a); });
}

void expand_tiles(CudaContext* c, WeightType type, const Output& o, int cols, int begin, int end, void* to) noexcept {
  const int warps = (end - begin + kUnitRows - 1) / kUnitRows * units_of(cols), blocks = (warps * 32 + kFewThreads - 1) / kFewThreads;
  with_tiled(type, [&]<WeightType t>() {
    expand_kernel<t><<<blocks, kFewThreads, 0, c->stream>>>(o.weight, cols, begin, end, static_cast<__half*>(to));
  });
}

}  // namespace sluice::kernels::cuda
