// Products of f16 and bf16 weights with up to 16 tokens: what decoding does, so the weights' bytes are all that counts. A block
// walks tiles of 16 output rows; its eight warps share a tile's columns in chunks of 64 and multiply on tensor cores with the
// weights as the left factor. There is a block a processor, so that the next kernel's blocks can come in and load their first
// weights while this one's work. A chunk's columns are taken in the order in which a lane's 16-byte loads bring them; the inputs
// are read in the same order, and a sum does not mind. Weights go from memory to registers kDepth chunks ahead: the first
// before the kernel waits for its inputs, the next tile's while this one is being folded. No float of a token depends on
// another's: a column of the product is folded from its own inputs, in an order that K alone decides.
#include <algorithm>

#include "kernels/cuda/half_types.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/products.h"
#include "kernels/cuda/prologue.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kWarps = kPrologueThreads / 32, kDepth = 4, kChunk = 64, kTileRows = 16;
constexpr int kPad = 32;                    // halves after a row of inputs in shared memory: neighbours start half the banks apart
constexpr int kFusedTokens = 2;             // up to here, blocks prepare their inputs themselves,
constexpr int kFusedCols = 8192;            // if rows are no longer than this
constexpr size_t kFusedBytes = size_t{kFusedTokens} * 3 * (kFusedCols + kPad) * 2;
constexpr int kAhead = 8192;                // bytes of each row of the first tile, after those in registers, that the cache is told to get

struct FewArgs {
  Product p;
  int tile_end[kMaxLinearOutputs];  // tiles of the outputs up to and with this one
  const void* inputs;               // [parts][T][cols] where they are prepared; else x is
  Prologue prologue;
  const float* x;
  int x_stride;
  const float* norm_weight;
  float eps;
};

__device__ inline uint4 load_weight(const uint8_t* p) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0,%1,%2,%3}, [%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(p));
  return v;
}

// Rounds v to H, and what is left to further parts; part p goes to `to` + p * part_stride.
template <class H, int parts>
__device__ inline void store_parts(H* to, size_t part_stride, const float v[8]) {
  float rest[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) rest[i] = v[i];
#pragma unroll
  for (int part = 0; part < parts; ++part) {
    uint32_t words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[i] = pair_of<H>(rest[2 * i], rest[2 * i + 1]);
      if (parts > 1) {
        const H* h = reinterpret_cast<const H*>(&words[i]);
        rest[2 * i] -= to_float(h[0]), rest[2 * i + 1] -= to_float(h[1]);
      }
    }
    *reinterpret_cast<uint4*>(to + part * part_stride) = make_uint4(words[0], words[1], words[2], words[3]);
  }
}

template <class H, int parts>
__global__ void __launch_bounds__(kPrologueThreads) halves_kernel(LinearArgs a, int cols, H* inputs) {
  let_next_begin();
  wait_for_previous();
  H* row = inputs + size_t(blockIdx.x) * cols;
  const size_t part_stride = size_t(gridDim.x) * cols;
  prepare_row(a.prologue, a.x + size_t(blockIdx.x) * a.x_stride, cols, a.norm_weight, a.eps, blockIdx.y, gridDim.y,
              [&](int k, const float v[8]) { store_parts<H, parts>(row + k, part_stride, v); });
}

// Where a lane's weights of one tile begin: rows lane / 4 and 8 below, the last row in place of those past the end.
struct Tile {
  const Output* out;
  int row;
  const uint8_t *upper, *lower;
  __device__ Tile(const FewArgs& a, int tile, int lane) {
    int i = 0;
    while (i + 1 < a.p.outputs && tile >= a.tile_end[i]) ++i;
    out = &a.p.out[i];
    row = (tile - (i ? a.tile_end[i - 1] : 0)) * kTileRows;
    const uint8_t* from = out->weight + lane % 4 * 16;
    upper = from + size_t(min(row + lane / 4, out->rows - 1)) * out->row_bytes;
    lower = from + size_t(min(row + lane / 4 + 8, out->rows - 1)) * out->row_bytes;
  }
};

__device__ inline void load_chunk(uint4 w[4], const Tile& tile, int chunk, int chunks) {
  if (chunk >= chunks) {
#pragma unroll
    for (int i = 0; i < 4; ++i) w[i] = make_uint4(0, 0, 0, 0);
    return;
  }
  const size_t at = size_t(chunk) * (kChunk * 2);
  w[0] = load_weight(tile.upper + at);
  w[1] = load_weight(tile.lower + at);
  w[2] = load_weight(tile.upper + at + 64);
  w[3] = load_weight(tile.lower + at + 64);
}

// Asks the second-level cache for what follows the chunks that are on their way to registers.
__device__ inline void fetch_ahead(const Tile& tile, size_t row_bytes) {
  constexpr size_t kLoaded = size_t{kDepth} * kWarps * kChunk * 2;
  if (threadIdx.x >= kTileRows || row_bytes <= kLoaded) return;
  const uint8_t* from = tile.out->weight + size_t(min(tile.row + int(threadIdx.x), tile.out->rows - 1)) * row_bytes + kLoaded;
  const uint32_t bytes = uint32_t(min(row_bytes - kLoaded, size_t{kAhead}));
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(from), "r"(bytes) : "memory");
}

// sums += weights of one chunk * inputs. in: the chunk's first input of this lane's token (lane / 4), or null past the last.
template <class H, int column_tiles, int parts, bool fused>
__device__ inline void multiply_chunk(float sums[column_tiles][4], const uint4 w[4], const H* const in[column_tiles], size_t part_stride, int chunk) {
#pragma unroll
  for (int part = 0; part < parts; ++part) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
#pragma unroll
      for (int j = 0; j < column_tiles; ++j) {
        uint4 x = make_uint4(0, 0, 0, 0);
        if (in[j]) {
          const auto* from = reinterpret_cast<const uint4*>(in[j] + part * part_stride + chunk * kChunk + half * 32);
          x = *from;
        }
        const uint4 &u = w[2 * half], &l = w[2 * half + 1];
        mma<H>(sums[j], u.x, l.x, u.y, l.y, x.x, x.y);
        mma<H>(sums[j], u.z, l.z, u.w, l.w, x.z, x.w);
      }
    }
  }
}

template <class H, int column_tiles, int parts, bool fused>
__global__ void __launch_bounds__(kPrologueThreads, 2) few_kernel(const __grid_constant__ FewArgs a) {
  constexpr int kColumns = 8 * column_tiles;
  extern __shared__ __align__(16) uint8_t dynamic[];
  __shared__ float folds[2][kWarps][kColumns][kTileRows + 1];
  let_next_begin();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, token = lane / 4;
  const int chunks = a.p.cols / kChunk, rounds = ((chunks + kWarps - 1) / kWarps + kDepth - 1) / kDepth * kDepth;
  const int tiles = a.tile_end[a.p.outputs - 1];
  Tile next(a, blockIdx.x, lane);
  uint4 w[kDepth][4];
#pragma unroll
  for (int i = 0; i < kDepth; ++i) load_chunk(w[i], next, warp + i * kWarps, chunks);
  fetch_ahead(next, next.out->row_bytes);
  wait_for_previous();

  const H* inputs = static_cast<const H*>(a.inputs);
  int pitch = a.p.cols;
  if (fused) {
    pitch += kPad;
    H* rows = reinterpret_cast<H*>(dynamic);
    for (int t = 0; t < a.p.tokens; ++t)
      prepare_row(a.prologue, a.x + size_t(t) * a.x_stride, a.p.cols, a.norm_weight, a.eps, 0, 1,
                  [&](int k, const float v[8]) { store_parts<H, parts>(rows + t * pitch + k, size_t(a.p.tokens) * pitch, v); });
    __syncthreads();
    inputs = rows;
  }
  const size_t part_stride = size_t(a.p.tokens) * pitch;
  const H* in[column_tiles];
#pragma unroll
  for (int j = 0; j < column_tiles; ++j)
    in[j] = token + 8 * j < a.p.tokens ? inputs + size_t(token + 8 * j) * pitch + lane % 4 * 8 : nullptr;

  // A thread's output of a tile: a row of it and a token.
  const int out_row = threadIdx.x % kTileRows, out_token = threadIdx.x / kTileRows;
  for (int index = blockIdx.x, parity = 0; index < tiles; index += gridDim.x, parity ^= 1) {
    const Output& o = *next.out;
    const int row = next.row + out_row;
    const bool mine = out_token < a.p.tokens && row < o.rows;
    float* y = o.y + size_t(out_token) * o.y_stride + row;
    float start = 0;
    if (mine && o.accumulate) start = __ldcg(y);
    if (mine && o.bias) start += o.bias[row];
    float sums[column_tiles][4] = {};
    Tile current = next;
    if (index + int(gridDim.x) < tiles) next = Tile(a, index + gridDim.x, lane);
    const bool more = index + int(gridDim.x) < tiles;
    for (int round = 0; round < rounds; round += kDepth) {
      const bool last = round + kDepth >= rounds;
#pragma unroll
      for (int i = 0; i < kDepth; ++i) {
        const int chunk = warp + (round + i) * kWarps;
        if (chunk < chunks) multiply_chunk<H, column_tiles, parts, fused>(sums, w[i], in, part_stride, chunk);
        if (!last) load_chunk(w[i], current, chunk + kDepth * kWarps, chunks);
        else if (more) load_chunk(w[i], next, warp + i * kWarps, chunks);
      }
    }
    auto& fold = folds[parity];
#pragma unroll
    for (int j = 0; j < column_tiles; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) fold[warp][8 * j + lane % 4 * 2 + i % 2][lane / 4 + i / 2 * 8] = sums[j][i];
    }
    __syncthreads();  // the other half of folds is read before the next of these
    if (mine) {
      float v = 0;
#pragma unroll
      for (int i = 0; i < kWarps; ++i) v += fold[i][out_token][out_row];
      *y = start + v;
    }
  }
}

template <class H, int column_tiles, int parts, bool fused>
void launch_few(CudaContext* c, const FewArgs& a) {
  const auto kernel = few_kernel<H, column_tiles, parts, fused>;
  const size_t shared = fused ? size_t(a.p.tokens) * parts * (a.p.cols + kPad) * sizeof(H) : 0;
  if (shared > 32 * 1024) note(c, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(kFusedBytes)));
  const int blocks = std::min(a.tile_end[a.p.outputs - 1], c->processors);
  note(c, launch_early(c->stream, dim3(unsigned(blocks)), kPrologueThreads, shared, kernel, a));
}

template <class H, int parts>
void multiply_few_of(CudaContext* c, WeightType type, const Product& p, const LinearArgs& a) {
  FewArgs f{p, {}, c->inputs, a.prologue, a.x, a.x_stride, a.norm_weight, a.eps};
  int tiles = 0;
  for (int i = 0; i < p.outputs; ++i) f.tile_end[i] = tiles += (p.out[i].rows + kTileRows - 1) / kTileRows;
  if (p.tokens <= kFusedTokens && p.cols <= kFusedCols)
    return launch_few<H, 1, parts, true>(c, f);
  // A deterministic context comes here with any number of tokens.
  for (int first = 0; first < p.tokens; first += kFewTokens) {
    LinearArgs some = a;
    some.num_tokens = f.p.tokens = std::min(kFewTokens, p.tokens - first);
    some.x = a.x + size_t(first) * a.x_stride;
    for (int i = 0; i < p.outputs; ++i) f.p.out[i].y = p.out[i].y + size_t(first) * p.out[i].y_stride;
    prepare_halves(c, type, some, p.cols, parts);
    if (f.p.tokens <= 8) launch_few<H, 1, parts, false>(c, f);
    else launch_few<H, 2, parts, false>(c, f);
  }
}

}  // namespace

bool few_takes(WeightType type, int cols, const LinearArgs& a) noexcept {
  return (type == WeightType::kF16 || type == WeightType::kBF16) && cols % kChunk == 0 && a.x_stride % 4 == 0 &&
         reinterpret_cast<uintptr_t>(a.x) % 16 == 0;
}

void prepare_halves(CudaContext* c, WeightType type, const LinearArgs& a, int cols, int parts) noexcept {
  const auto go = [&]<class H>(H* to) {
    const auto kernel = parts == 1 ? halves_kernel<H, 1> : halves_kernel<H, 3>;
    // Only a norm needs the whole row in one block.
    const int shares = a.prologue == Prologue::kRmsNorm ? 1 : (cols + kPrologueStep - 1) / kPrologueStep;
    note(c, launch_early(c->stream, dim3(unsigned(a.num_tokens), unsigned(shares)), kPrologueThreads, 0, kernel, a, cols, to));
  };
  if (type == WeightType::kF16) go(reinterpret_cast<__half*>(c->inputs));
  else go(reinterpret_cast<__nv_bfloat16*>(c->inputs));
}

void multiply_few(CudaContext* c, WeightType type, const Product& p, const LinearArgs& a) noexcept {
  if (type == WeightType::kF16) {
    c->deterministic ? multiply_few_of<__half, 3>(c, type, p, a) : multiply_few_of<__half, 1>(c, type, p, a);
  } else {
    c->deterministic ? multiply_few_of<__nv_bfloat16, 3>(c, type, p, a) : multiply_few_of<__nv_bfloat16, 1>(c, type, p, a);
  }
}

}  // namespace sluice::kernels::cuda
