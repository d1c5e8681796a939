// Products of f16, bf16 and fp8 weights with few tokens: what decoding does, so the weights' bytes are all that counts. A block walks
// tiles of 16 output rows; its eight warps share a tile's columns in chunks of 64 (fp8: 128) and multiply on tensor cores with the weights
// as the left factor. A chunk's columns are taken in the order in which a lane's 16-byte reads bring them; the inputs are read
// in the same order, and a sum does not mind. Every warp copies its own weights to a ring of its own in shared memory, kDepth
// chunks ahead and across tiles, so that no warp waits for another but where a tile's sums are folded. There is a block a
// processor and room for the next kernel's beside it, which can so load its first weights while this one works. No float of a
// token depends on another's: a column of the product is folded from its own inputs, in an order that K alone decides.
#include <algorithm>

#include "kernels/cuda/cache.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pipeline.cuh"
#include "kernels/cuda/products.h"
#include "kernels/cuda/prologue.cuh"
#include "kernels/cuda/tickets.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kThreads = kPrologueThreads, kWarps = kThreads / 32, kTileRows = 16, kDepth = 5;
constexpr int kLine = 128;         // bytes of a row in a chunk
// Columns of a chunk of weights W: f16, bf16, or codes of e4m3, which are multiplied as f16.
template <class W> constexpr int kChunk = kLine / sizeof(W);
constexpr int kRingBytes = kDepth * kThreads * 64;
constexpr int kPad = 32;          // halves after a row of inputs in shared memory: neighbours start half the banks apart
constexpr int kFusedTokens = 2;   // up to here, blocks prepare their inputs themselves,
constexpr int kFusedCols = 8192;  // if rows are no longer than this
constexpr size_t kInputBytes = 128 * 1024;  // inputs that are kept in shared memory; more are read from memory as they are used

struct FewArgs {
  Product p;
  int tile_end[kMaxLinearOutputs];  // tiles of the outputs up to and with this one
  const void* inputs;               // [parts][T][cols] where they are prepared, or halves; else x is
  Prologue prologue;
  const float* x;
  int x_stride;
  const float* norm_weight;
  float eps;
  int* tickets;
};

// A tile's place: an output and its first row. Under a gate: the first one, and eight rows of each.
struct Tile {
  const Output* out;
  int row;
  bool gated;
  __device__ Tile(const FewArgs& a, int tile) {
    int i = 0;
    while (i + 1 < a.p.outputs && tile >= a.tile_end[i]) ++i;
    gated = a.p.gate != Gate::kNone;
    out = &a.p.out[i];
    row = (tile - (i ? a.tile_end[i - 1] : 0)) * (gated ? kTileRows / 2 : kTileRows);
  }
  __device__ const Output& of(int r) const { return out[gated && r >= kTileRows / 2 ? 1 : 0]; }
  // Row r of the tile in its output, the last one in place of those past the end.
  __device__ int row_of(int r) const { return min(row + (gated ? r % (kTileRows / 2) : r), out->rows - 1); }
  __device__ const uint8_t* weights(int r) const { return of(r).weight + size_t(row_of(r)) * out->row_bytes; }
};

// How many tiles ahead of a tile's products its successors' copies begin: a warp has `each` chunks of a tile at least.
template <class W>
__device__ inline int tiles_ahead(int cols) { return 1 + kDepth / max(1, cols / (kChunk<W> * kWarps)); }

// Goes through a warp's chunks of the block's tiles in order. A chunk in the ring is 16 rows of 128 bytes; 16-byte piece c of row
// r is at r * 128 + (c ^ r % 2 * 4) * 16, so that the fragments' reads meet no bank twice.
template <class W>
struct Walk {
  const FewArgs& a;
  const Tiles& tiles;
  int number = 0, index, chunk;
  const uint64_t once = policy_once();
  const uint8_t* rows[4];  // this lane's piece of chunk 0, of rows lane / 8 and every fourth after it
  __device__ Walk(const FewArgs& a, const Tiles& tiles) : a(a), tiles(tiles), index(tiles.at(0)) { enter(); }
  __device__ bool more() const { return index < a.tile_end[a.p.outputs - 1]; }
  __device__ void enter() {
    const int lane = threadIdx.x % 32;
    chunk = threadIdx.x / 32;
    // Rows of few chunks leave some warps none.
    if (!more() || chunk * kChunk<W> >= a.p.cols) return void(index = a.tile_end[a.p.outputs - 1]);
    const Tile tile(a, index);
#pragma unroll
    for (int i = 0; i < 4; ++i) rows[i] = tile.weights(4 * i + lane / 8) + lane % 8 * 16;
  }
  // Starts copying the chunk to the warp's part of a slot, and goes on: whole lines of memory at a time. A group is committed in
  // any case.
  __device__ void copy(uint32_t slot) {
    if (more()) {
      const int lane = threadIdx.x % 32;
      const uint32_t to = slot + lane / 8 * 128 + (lane % 8 ^ lane / 8 % 2 * 4) * 16;
#pragma unroll
      for (int i = 0; i < 4; ++i) copy_once(to + i * 512, rows[i] + size_t(chunk) * kLine, once);
      if ((chunk += kWarps) * kChunk<W> >= a.p.cols) index = tiles.at(++number), enter();
    }
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
};

// The inputs of this lane's tokens (lane / 4, and 8 more a column tile) for one chunk of columns; zeros past the last token.
template <class W, int column_tiles, int parts>
struct Inputs {
  using H = HalfOf<W>;
  static constexpr int kEach = 2 / sizeof(W);  // pieces of eight inputs for 16 bytes of weights
  uint4 x[parts][column_tiles][2][kEach];
  __device__ void load(const H* const in[column_tiles], size_t part_stride, int col) {
#pragma unroll
    for (int part = 0; part < parts; ++part) {
#pragma unroll
      for (int j = 0; j < column_tiles; ++j) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
          for (int i = 0; i < kEach; ++i) {
            uint4& v = x[part][j][half][i];
            v = make_uint4(0, 0, 0, 0);
            if (in[j]) v = *reinterpret_cast<const uint4*>(in[j] + part * part_stride + col + half * (kChunk<W> / 2) + 8 * i);
          }
        }
      }
    }
  }
};

// sums += one warp's 16 rows of a chunk * inputs. weights: the warp's part of a slot.
template <class W, int column_tiles, int parts>
__device__ inline void multiply_chunk(float sums[column_tiles][2][4], const uint8_t* weights, const Inputs<W, column_tiles, parts>& in) {
  using H = HalfOf<W>;
  const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint8_t* at = weights + g * 128 + ((half * 4 + t) ^ g % 2 * 4) * 16;
    const uint4 u = *reinterpret_cast<const uint4*>(at), l = *reinterpret_cast<const uint4*>(at + 1024);
    if constexpr (kIsCode<W>) {
      const uint32_t upper[4] = {u.x, u.y, u.z, u.w}, lower[4] = {l.x, l.y, l.z, l.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        uint32_t a[4];
        four_halves<W>(upper[i], a[0], a[2]);
        four_halves<W>(lower[i], a[1], a[3]);
#pragma unroll
        for (int j = 0; j < column_tiles; ++j) {
          const uint4& x = in.x[0][j][half][i / 2];
          mma<H>(sums[j][half], a[0], a[1], a[2], a[3], i % 2 ? x.z : x.x, i % 2 ? x.w : x.y);
        }
      }
    } else {
#pragma unroll
      for (int part = 0; part < parts; ++part) {
#pragma unroll
        for (int j = 0; j < column_tiles; ++j) {
          const uint4& x = in.x[part][j][half][0];
          mma<H>(sums[j][half], u.x, l.x, u.y, l.y, x.x, x.y);
          mma<H>(sums[j][half], u.z, l.z, u.w, l.w, x.z, x.w);
        }
      }
    }
  }
}

// The scales of a lane's two rows in each chunk, of fp8 with one a chunk: fetched a chunk ahead.
struct ChunkScales {
  float next[2];
  __device__ void fetch(const Tile& tile, int cols, int col) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int r = int(threadIdx.x) % 32 / 4 + 8 * i, each = tile.out->scale_cols;
      next[i] = __ldg(tile.of(r).scales + size_t(tile.row_of(r)) * (cols / each) + col / each);
    }
  }
};

// A tile's results under a gate: eight rows, of both weights' sums over the warps, times their scales. Token and row are the thread's.
template <class Fold>
__device__ inline void store_gated(const FewArgs& a, const Tile& tile, int token, int r, const Fold& fold, float scale, float up_scale) {
  const int row = tile.row + r;
  if (r >= kTileRows / 2 || token >= a.p.tokens || row >= tile.out->rows) return;
  float v = 0, up = 0;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) v += fold[i][token][r], up += fold[i][token][r + kTileRows / 2];
  const Output& o = *tile.out;
  store_element(o.y, o.y_type, size_t(token) * o.y_stride + row, gated(a.p.gate, v * scale, up * up_scale));
}

// by_chunk: fp8 has a scale a row and chunk; else one a row.
template <class W, int column_tiles, int parts, bool by_chunk>
__device__ inline void multiply_tiles_of_block(const FewArgs& a, Tiles& tiles, uint8_t* ring, Walk<W>& walk, const HalfOf<W>* inputs, int pitch) {
  using H = HalfOf<W>;
  constexpr int kColumns = kChunk<W>;
  __shared__ float folds[2][kWarps][8 * column_tiles][kTileRows + 1];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const size_t part_stride = size_t(a.p.tokens) * pitch;
  const H* in[column_tiles];
#pragma unroll
  for (int j = 0; j < column_tiles; ++j)
    in[j] = lane / 4 + 8 * j < a.p.tokens ? inputs + size_t(lane / 4 + 8 * j) * pitch + lane % 4 * (16 / sizeof(W)) : nullptr;
  // A thread's output of a tile: a row of it and a token.
  const int out_row = threadIdx.x % kTileRows, out_token = threadIdx.x / kTileRows;
  // Inputs come from shared memory or a cache: one chunk ahead hides that.
  Inputs<W, column_tiles, parts> next;
  next.load(in, part_stride, warp * kColumns < a.p.cols ? warp * kColumns : 0);
  int slot = 0, parity = 0, index = tiles.at(0);
  for (int number = 0; index < a.tile_end[a.p.outputs - 1]; index = tiles.at(++number), parity ^= 1) {
    const Tile tile(a, index);
    int drawn = 0;
    if (threadIdx.x == 0) drawn = tiles.draw();
    const Output& o = *tile.out;
    const int row = tile.row + out_row;
    const bool mine = !tile.gated && out_token < a.p.tokens && row < o.rows;
    float* y = o.y + size_t(out_token) * o.y_stride + row;
    float start = 0;
    if (mine && o.accumulate) start = __ldcg(y);
    if (mine && o.bias) start += o.bias[row];
    float scale = 1, up_scale = 1;  // long before they are used
    if (kIsCode<W> && !by_chunk && out_token < a.p.tokens && row < o.rows) {
      scale = o.scales[row];
      if (tile.gated) up_scale = tile.out[1].scales[row];
    }
    ChunkScales scales;
    if (by_chunk && warp * kColumns < a.p.cols) scales.fetch(tile, a.p.cols, warp * kColumns);
    float sums[column_tiles][2][4] = {};
    for (int col = warp * kColumns; col < a.p.cols; col += kWarps * kColumns) {
      asm volatile("cp.async.wait_group %0;" ::"n"(kDepth - 1) : "memory");
      __syncwarp();
      uint8_t* weights = ring + slot * (kThreads * 64);
      const Inputs<W, column_tiles, parts> now = next;
      const int following = col + kWarps * kColumns;
      next.load(in, part_stride, following < a.p.cols ? following : warp * kColumns);
      if constexpr (by_chunk) {
        const float by[2] = {scales.next[0], scales.next[1]};
        if (following < a.p.cols) scales.fetch(tile, a.p.cols, following);
        float some[column_tiles][2][4] = {};
        multiply_chunk<W, column_tiles, parts>(some, weights, now);
#pragma unroll
        for (int j = 0; j < column_tiles; ++j)
#pragma unroll
          for (int i = 0; i < 4; ++i) sums[j][0][i] = fmaf(some[j][0][i] + some[j][1][i], by[i / 2], sums[j][0][i]);
      } else {
        multiply_chunk<W, column_tiles, parts>(sums, weights, now);
      }
      __syncwarp();  // all have read what is overwritten now
      walk.copy(shared_address(weights));
      if (++slot == kDepth) slot = 0;
    }
    auto& fold = folds[parity];
#pragma unroll
    for (int j = 0; j < column_tiles; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) fold[warp][8 * j + lane % 4 * 2 + i % 2][lane / 4 + i / 2 * 8] = sums[j][0][i] + sums[j][1][i];
    }
    if (threadIdx.x == 0) tiles.put(number, drawn);
    __syncthreads();  // the other half of folds is read before the next of these
    if (mine) {
      float v = 0;
#pragma unroll
      for (int i = 0; i < kWarps; ++i) v += fold[i][out_token][out_row];
      *y = kIsCode<W> && !by_chunk ? fmaf(v, scale, start) : start + v;
    }
    if (tile.gated) store_gated(a, tile, out_token, out_row, fold, scale, up_scale);
  }
}

// Fills shared memory with the block's inputs, prepared here or copied.
template <class H, int parts>
__device__ inline void place_inputs(const FewArgs& a, H* rows, int pitch) {
  if (a.inputs) {
    const int pieces = a.p.cols / 8;
    const auto* from = static_cast<const uint4*>(a.inputs);
#pragma unroll 4
    for (int i = threadIdx.x; i < a.p.tokens * parts * pieces; i += kThreads)
      *reinterpret_cast<uint4*>(rows + i / pieces * pitch + i % pieces * 8) = __ldcg(from + i);
  } else {
    for (int t = 0; t < a.p.tokens; ++t)
      prepare_row<2>(a.prologue, a.x + size_t(t) * a.x_stride, a.p.cols, a.norm_weight, a.eps, 0, 1,
                  [&](int k, const float v[8]) { store_parts<H, parts>(rows + t * pitch + k, size_t(a.p.tokens) * pitch, v); });
  }
  __syncthreads();
}

// Registers: two blocks of few tokens leave room for a small kernel's between them, such as attention of one sequence.
template <class W, int column_tiles, int parts, bool in_shared, bool by_chunk>
__global__ void __launch_bounds__(kThreads) __maxnreg__(parts == 1 && column_tiles == 1 ? kIsCode<W> ? 96 : 88 : 128) few_kernel(const __grid_constant__ FewArgs a) {
  using H = HalfOf<W>;
  extern __shared__ __align__(128) uint8_t dynamic[];
  let_next_begin();
  uint8_t* ring = dynamic + threadIdx.x / 32 * 2048;
  __shared__ int queue[Tiles::kQueue];
  Tiles tiles(queue, a.tickets, a.tile_end[a.p.outputs - 1], tiles_ahead<W>(a.p.cols));
  Walk<W> walk(a, tiles);
#pragma unroll
  for (int i = 0; i < kDepth; ++i) walk.copy(shared_address(ring + i * (kThreads * 64)));
  wait_for_previous();
  if constexpr (in_shared) {
    H* rows = reinterpret_cast<H*>(dynamic + kRingBytes);
    place_inputs<H, parts>(a, rows, a.p.cols + kPad);
    multiply_tiles_of_block<W, column_tiles, parts, by_chunk>(a, tiles, ring, walk, rows, a.p.cols + kPad);
  } else {
    multiply_tiles_of_block<W, column_tiles, parts, by_chunk>(a, tiles, ring, walk, static_cast<const H*>(a.inputs), a.p.cols);
  }
  if (threadIdx.x == 0) tiles.leave();
}

template <class W, int column_tiles, int parts, bool in_shared, bool by_chunk>
void launch_few_as(CudaContext* c, FewArgs a, size_t inputs) {
  a.tickets = next_tickets(c);
  const auto kernel = few_kernel<W, column_tiles, parts, in_shared, by_chunk>;
  const size_t shared = kRingBytes + (in_shared ? inputs : 0);
  note(c, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared)));
  const int blocks = std::min(a.tile_end[a.p.outputs - 1], c->processors);
  note(c, launch_early({c->stream, a.p.tokens}, dim3(unsigned(blocks)), kThreads, shared, kernel, a));
}

template <class W, int column_tiles, int parts, bool by_chunk>
void launch_few(CudaContext* c, const FewArgs& a) {
  const size_t inputs = size_t(a.p.tokens) * parts * (a.p.cols + kPad) * sizeof(HalfOf<W>);
  if (inputs <= kInputBytes) launch_few_as<W, column_tiles, parts, true, by_chunk>(c, a, inputs);
  else launch_few_as<W, column_tiles, parts, false, by_chunk>(c, a, inputs);
}

template <class W, int parts, bool by_chunk = false>
void multiply_few_of(CudaContext* c, WeightType type, const Product& p, const LinearArgs& a) {
  FewArgs f{p, {}, nullptr, a.prologue, a.x.floats(), a.x_stride, a.norm_weight, a.eps, nullptr};
  int tiles = 0;
  for (int i = 0; i < p.outputs; ++i) f.tile_end[i] = tiles += (p.out[i].rows + kTileRows - 1) / kTileRows;
  if (p.gate != Gate::kNone) f.tile_end[0] = f.tile_end[1] = (p.out[0].rows + kTileRows / 2 - 1) / (kTileRows / 2);
  if (a.prologue == Prologue::kNone && a.x.type == dtype_of<HalfOf<W>>() && a.x_stride == p.cols && p.tokens <= 8 && parts == 1) {
    f.inputs = a.x.data;
    return launch_few<W, 1, parts, by_chunk>(c, f);
  }
  if (p.tokens <= kFusedTokens && p.cols <= kFusedCols && a.x.type == DType::kF32) return launch_few<W, 1, parts, by_chunk>(c, f);
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
