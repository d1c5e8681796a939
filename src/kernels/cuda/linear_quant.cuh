// Products of tiled weights (tiled.h) with a few tokens (tiled_weights.cuh): the weights' bytes are all that counts. Two blocks a processor hide each
// other's folding. And tiled weights expanded to f16.
#pragma once
#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/tiled_weights.cuh"

namespace sluice::kernels::cuda {

constexpr int kFusedTokens = 1, kFusedCols = 8192;  // up to here, blocks prepare their inputs themselves

template <class T, int tiles>
__global__ void __launch_bounds__(kFewThreads, 2) quant_kernel(const __grid_constant__ FewArgs a, int input_bytes) {
  using F = TiledWeights<T, tiles>;
  auto& dynamic = dynamic_shared_bytes;
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

// Tokens whose inputs there is room for beside a block's ring; 0: not one's.
template <class T, int tiles>
int tokens_a_pass(const CudaContext* c, int cols) {
  constexpr size_t kMostBytes = 96 * 1024;
  const size_t room = room_for_inputs<TiledWeights<T, tiles>>(c, kMostBytes);
  int tokens = kFragmentTokens;
  while (tokens > 0 && fragment_bytes(tokens, cols) > room) --tokens;
  return tokens;
}
// Of a product that may have two tiles a block, where it wants them.
template <class T>
bool two_tiles(const CudaContext* c, const Product& p) {
  int rows = 0;
  for (int i = 0; i < p.outputs; ++i) rows += p.out[i].rows;
  constexpr int kMost = kMostTiles<T>;
  if (p.gate != Gate::kNone) return true;
  return kMost == 2 && rows >= kMost * kUnitRows * c->processors * 4 / 3 && tokens_a_pass<T, 2>(c, p.cols) >= std::min(p.tokens, tokens_a_pass<T, 1>(c, p.cols));
}
template <class T>
int tokens_of(const CudaContext* c, const Product& p, bool two) {
  return two ? tokens_a_pass<T, 2>(c, p.cols) : tokens_a_pass<T, 1>(c, p.cols);
}
template <class T>
int quant_passes(const CudaContext* c, const Product& p) noexcept {
  const int step = tokens_of<T>(c, p, two_tiles<T>(c, p));
  return step ? (p.tokens + step - 1) / step : 0;
}

template <class T, int tiles>
void launch_quant(CudaContext* c, FewArgs a) {
  a.tickets = next_tickets(c);
  int groups = 0;
  for (int i = 0; i < a.p.outputs; ++i) a.tile_end[i] = groups += (a.p.out[i].rows + tiles * kUnitRows - 1) / (tiles * kUnitRows);
  if (a.p.gate != Gate::kNone) a.tile_end[0] = a.tile_end[1] = groups = (a.p.out[0].rows + kUnitRows - 1) / kUnitRows;
  const size_t inputs = fragment_bytes(a.p.tokens, a.p.cols), shared = inputs + kRingBytes<TiledWeights<T, tiles>>;
  const auto kernel = quant_kernel<T, tiles>;
  note(c, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared)));
  note(c, launch_early({c, a.p.tokens}, dim3(unsigned(std::min(groups, 2 * c->processors))), kFewThreads, shared, kernel, a, int(inputs)));
}

template <class T>
void multiply_quant(CudaContext* c, const Product& p, const LinearArgs& a) noexcept {
  FewArgs q{p, {}, nullptr, a.prologue, a.x.floats(), a.x_stride, a.norm_weight, a.eps, nullptr};
  const bool two = two_tiles<T>(c, p);
  const auto launch = two ? launch_quant<T, 2> : launch_quant<T, 1>;
  const int step = tokens_of<T>(c, p, two);
  if (a.prologue == Prologue::kNone && a.x.type == DType::kF16 && a.x_stride == p.cols && p.tokens <= step) {
    q.inputs = a.x.data;
    return launch(c, q);
  }
  if (p.tokens <= std::min(kFusedTokens, step) && p.cols <= kFusedCols && a.x.type == DType::kF32) return launch(c, q);
  prepare_halves(c, WeightType::kF16, a, p.cols, 1);
  for (int first = 0; first < p.tokens; first += step) {
    q.p.tokens = std::min(step, p.tokens - first);
    q.inputs = reinterpret_cast<const __half*>(c->inputs) + size_t(first) * p.cols;
    for (int i = 0; i < p.outputs; ++i) q.p.out[i].y = p.out[i].y_at(size_t(first) * size_t(p.out[i].y_stride));
    launch(c, q);
  }
}

// A warp a unit; a lane two rows.
template <class T>
__global__ void __launch_bounds__(kFewThreads) expand_kernel(const uint8_t* tiles, int cols, int begin, int end, __half* to) {
  const int unit = (blockIdx.x * kFewThreads + threadIdx.x) / 32, lane = threadIdx.x % 32, units = units_of(cols);
  const int tile = unit / units, g = lane / 4;
  if (begin + tile * kUnitRows >= end) return;
  const uint8_t* from = tiles + size_t(begin / kUnitRows) * tile_bytes<T>(cols) + size_t(unit) * kUnitBytes<T>;
  Lane<T> words;
  words.read(from);
#pragma unroll
  for (int half = 0; half < kUnitHalves; ++half) {
    uint32_t a[4];
    T::left(words, half, a);
    const int col = unit % units * kUnitCols + half * 16 + lane % 4 * 2;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = tile * kUnitRows + g + 8 * r;
      if (begin + row >= end || col >= cols) continue;
      const float scale = T::scale(words, half, r);
      float min = 0;
      if constexpr (T::kHasMin) min = T::min(words, half, r);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint32_t pair = a[2 * i + r];
        *reinterpret_cast<uint32_t*>(to + size_t(row) * cols + col + 8 * i) =
            pair_in_range<__half>(fmaf(scale, half_bits(pair), -min), fmaf(scale, half_bits(pair >> 16), -min));
      }
    }
  }
}

template <class T>
void expand_tiles(CudaContext* c, const Output& o, int cols, int begin, int end, void* to) noexcept {
  const int warps = (end - begin + kUnitRows - 1) / kUnitRows * units_of(cols), blocks = (warps * 32 + kFewThreads - 1) / kFewThreads;
  launch(c, blocks, kFewThreads, expand_kernel<T>, o.weight, cols, begin, end, static_cast<__half*>(to));
}

}  // namespace sluice::kernels::cuda
