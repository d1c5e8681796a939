// Products of f16, bf16 and fp8 weights with few tokens (row_weights.cuh): what decoding does, so the weights' bytes are all that counts. There is a
// block a processor, and room beside it for attention's or a norm's, while which it loads its first weights.
#include <algorithm>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/row_weights.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kFusedTokens = 2;   // up to here, blocks prepare their inputs themselves,
constexpr int kFusedCols = 8192;  // if rows are no longer than this
constexpr size_t kInputBytes = 128 * 1024;  // inputs that are kept in shared memory; more are read from memory as they are used
// Registers: a block of few tokens leaves room for a small kernel's, such as attention of one sequence.
template <class W, int column_tiles, int parts, bool in_shared, bool by_chunk, int row_tiles>
__global__ void __launch_bounds__(kFewThreads) __maxnreg__(parts == 1 && column_tiles == 1 && row_tiles == 1 ? 88 : 128) few_kernel(const __grid_constant__ FewArgs a) {
  using F = RowWeights<W, column_tiles, parts, by_chunk, row_tiles>;
  uint8_t* const dynamic = dynamic_shared();
  let_next_begin();
  uint8_t* const ring = ring_of_warp<F>(dynamic);
  __shared__ int queue[Tiles::kQueue];
  Tiles tiles(queue, a.tickets, a.tile_end[a.p.outputs - 1], tiles_ahead<F>(a.p.cols));
  Walk<F> walk(a, tiles);
  fill_ring(ring, walk);
  typename F::Summing summing(ring);
  if constexpr (in_shared) {
    const auto inputs = F::place(a, dynamic + kRingBytes<F>);
    summing.begin(a, inputs);
  } else {
    wait_for_previous();
    summing.begin(a, {static_cast<const HalfOf<W>*>(a.inputs), a.p.cols});
  }
  multiply_tiles_of_block<F>(a, tiles, summing, walk);
  if (threadIdx.x == 0) tiles.leave();
}

template <class W, int column_tiles, int parts, bool in_shared, bool by_chunk, int row_tiles>
void launch_few_as(CudaContext* c, FewArgs a, size_t inputs) {
  a.tickets = next_tickets(c);
  const auto kernel = few_kernel<W, column_tiles, parts, in_shared, by_chunk, row_tiles>;
  // With the folds more than half of a processor's: none has two of these kernels' blocks while another has none (docs/adr/0028).
  const size_t shared = std::max(c->can.shared_bytes / 2, kRingBytes<RowWeights<W, column_tiles, parts, by_chunk, row_tiles>> + (in_shared ? inputs : 0));
  note(c, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared)));
  const int blocks = std::min(a.tile_end[a.p.outputs - 1], c->processors);
  note(c, launch_early({c, a.p.tokens}, dim3(unsigned(blocks)), kFewThreads, shared, kernel, a));
}

// The first tile behind each output's.
void count_tiles(FewArgs& a, int rows) {
  int tiles = 0;
  for (int i = 0; i < a.p.outputs; ++i) a.tile_end[i] = tiles += (a.p.out[i].rows + rows - 1) / rows;
  if (a.p.gate != Gate::kNone) a.tile_end[0] = a.tile_end[1] = (a.p.out[0].rows + rows / 2 - 1) / (rows / 2);
}

template <class W, int column_tiles, int parts, bool by_chunk>
void launch_few(CudaContext* c, FewArgs a) {
  using F = RowWeights<W, column_tiles, parts, by_chunk, 1>;
  const size_t inputs = F::input_bytes(a.p.tokens, a.p.cols);
  const auto rounds = [&](int rows) {
    count_tiles(a, rows);
    return (a.tile_end[a.p.outputs - 1] + c->processors - 1) / c->processors;
  };
  // A tile of codes has half the bytes, and what is done once a tile counts twice: two at a time, where that leaves no processor with more of them.
  if constexpr (kIsCode<W> && column_tiles == 1 && !by_chunk) {
    using Two = RowWeights<W, column_tiles, parts, by_chunk, 2>;
    const bool fits = inputs <= room_for_inputs<Two>(c, kInputBytes);
    if (const int one = rounds(F::kRows); fits && 2 * rounds(Two::kRows) <= one) return launch_few_as<W, column_tiles, parts, true, by_chunk, 2>(c, a, inputs);
  }
  count_tiles(a, F::kRows);
  if (inputs <= room_for_inputs<F>(c, kInputBytes)) launch_few_as<W, column_tiles, parts, true, by_chunk, 1>(c, a, inputs);
  else launch_few_as<W, column_tiles, parts, false, by_chunk, 1>(c, a, inputs);
}

template <class W, int parts, bool by_chunk = false>
void multiply_few_of(CudaContext* c, WeightType type, const Product& p, const LinearArgs& a) {
  FewArgs f{p, {}, nullptr, a.prologue, a.x.floats(), a.x_stride, a.norm_weight, a.eps, nullptr};
  if (a.prologue == Prologue::kNone && a.x.type == dtype_of<HalfOf<W>>() && a.x_stride == p.cols && p.tokens <= 8 && parts == 1) {
    f.inputs = a.x.data;
    return launch_few<W, 1, parts, by_chunk>(c, f);
  }
  using F = RowWeights<W, 1, parts, by_chunk, 1>;
  const bool fits = F::input_bytes(p.tokens, p.cols) <= room_for_inputs<F>(c, kInputBytes);
  if (p.tokens <= kFusedTokens && p.cols <= kFusedCols && a.x.type == DType::kF32 && fits) return launch_few<W, 1, parts, by_chunk>(c, f);
  // A deterministic context comes here with any number of tokens.
  f.inputs = c->inputs;
  for (int first = 0; first < p.tokens; first += kFewTokens) {
    LinearArgs some = a;
    some.num_tokens = f.p.tokens = std::min(kFewTokens, p.tokens - first);
    some.x = a.x.from(size_t(first) * size_t(a.x_stride));
    for (int i = 0; i < p.outputs; ++i) f.p.out[i].y = p.out[i].y_at(size_t(first) * size_t(p.out[i].y_stride));
    prepare_halves(c, kIsCode<W> ? WeightType::kF16 : type, some, p.cols, parts);
    if (f.p.tokens <= 8) launch_few<W, 1, parts, by_chunk>(c, f);
    else launch_few<W, 2, parts, by_chunk>(c, f);
    }
}

}  // namespace

bool few_takes(WeightType type, const Product& p) noexcept {
  constexpr int kCodes = kChunk<E4m3>;
  if (is_fp8(type)) return p.cols % kCodes == 0 && (p.out[0].scale_cols == p.cols || p.out[0].scale_cols == kCodes);
  return (type == WeightType::kF16 || type == WeightType::kBF16) && p.cols % kChunk<__half> == 0;
}

void multiply_few(CudaContext* c, WeightType type, const Product& p, const LinearArgs& a) noexcept {
  if (is_fp8(type)) {
    p.out[0].scale_cols == p.cols ? multiply_few_of<E4m3, 1>(c, type, p, a) : multiply_few_of<E4m3, 1, true>(c, type, p, a);
  } else if (type == WeightType::kF16) {
    c->deterministic ? multiply_few_of<__half, 3>(c, type, p, a) : multiply_few_of<__half, 1>(c, type, p, a);
  } else {
    c->deterministic ? multiply_few_of<__nv_bfloat16, 3>(c, type, p, a) : multiply_few_of<__nv_bfloat16, 1>(c, type, p, a);
  }
}

}  // namespace sluice::kernels::cuda
