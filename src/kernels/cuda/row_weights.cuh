// A product of f16, bf16 or fp8 weights with few tokens, as eight warps compute it (few_tiles.cuh). A tile is 16 output rows. The warps share a tile's columns in chunks of 64 (fp8: 128) and multiply on tensor cores with the weights
// as the left factor. A chunk's columns are taken in the order in which a lane's 16-byte reads bring them; the inputs are read
// in the same order, and a sum does not mind. Every warp copies its own weights to a ring of its own in shared memory, kDepth
// chunks ahead and across tiles, so that no warp waits for another but where a tile's sums are folded. No float of a
// token depends on another's: a column of the product is folded from its own inputs, in an order that K alone decides.
#pragma once
#include "kernels/cuda/cache.cuh"
#include "kernels/cuda/few_tiles.cuh"

namespace sluice::kernels::cuda {

constexpr int kTileRows = 16;      // of the tensor cores' left factor; a tile of a product is one or two of these
constexpr int kLine = 128;         // bytes of a row in a chunk
// Columns of a chunk of weights W: f16, bf16, or codes of e4m3, which are multiplied as f16.
template <class W> constexpr int kChunk = kLine / sizeof(W);
constexpr int kPad = 32;          // halves after a row of inputs in shared memory: neighbours start half the banks apart

// A tile's place: an output and its first row. Under a gate: the first one, and half of the rows of each.
template <int rows>
struct Tile {
  const Output* out;
  int row;
  bool gated;
  __device__ Tile(const FewArgs& a, int tile) {
    int i = 0;
    while (i + 1 < a.p.outputs && tile >= a.tile_end[i]) ++i;
    gated = a.p.gate != Gate::kNone;
    out = &a.p.out[i];
    row = (tile - (i ? a.tile_end[i - 1] : 0)) * (gated ? rows / 2 : rows);
  }
  __device__ const Output& of(int r) const { return out[gated && r >= rows / 2 ? 1 : 0]; }
  // Row r of the tile in its output, the last one in place of those past the end.
  __device__ int row_of(int r) const { return min(row + (gated ? r % (rows / 2) : r), out->rows - 1); }
  __device__ const uint8_t* weights(int r) const { return of(r).weight + size_t(row_of(r)) * out->row_bytes; }
};

// A lane's pieces of a tile's rows: of chunk 0, of rows lane / 8 and every fourth after it. A chunk in the ring is the tile's rows of 128 bytes;
// 16-byte piece c of row r is at r * 128 + (c ^ r % 2 * 4) * 16, so that the fragments' reads meet no bank twice.
template <int tile_rows>
struct TileRows {
  const uint8_t* rows[tile_rows / 4];
  __device__ void enter(const FewArgs& a, int index) {
    const Tile<tile_rows> tile(a, index);
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int i = 0; i < tile_rows / 4; ++i) rows[i] = tile.weights(4 * i + lane / 8) + lane % 8 * 16;
  }
  // Starts copying a chunk to the warp's part of a slot: whole lines of memory at a time.
  __device__ void copy(uint32_t slot, int chunk, uint64_t once) const {
    const int lane = threadIdx.x % 32;
    const uint32_t to = slot + lane / 8 * 128 + (lane % 8 ^ lane / 8 % 2 * 4) * 16;
#pragma unroll
    for (int i = 0; i < tile_rows / 4; ++i) copy_once(to + i * 512, rows[i] + size_t(chunk) * kLine, once);
  }
};

// The inputs of this lane's tokens (lane / 4, and 8 more a column tile) for one chunk of columns; zeros past the last token.
template <class W, int column_tiles, int parts>
struct ChunkInputs {
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
__device__ inline void multiply_chunk(float sums[column_tiles][2][4], const uint8_t* weights, const ChunkInputs<W, column_tiles, parts>& in) {
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
  __device__ void fetch(const Tile<kTileRows>& tile, int cols, int col) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int r = int(threadIdx.x) % 32 / 4 + 8 * i, each = tile.out->scale_cols;
      next[i] = __ldg(tile.of(r).scales + size_t(tile.row_of(r)) * (cols / each) + col / each);
    }
  }
};

// W: f16, bf16 or e4m3. column_tiles: of 8 tokens. parts: of an input, whose sum it is. by_chunk: fp8 has a scale a row and chunk; else one a row.
// row_tiles: of 16 rows, one or two.
template <class W, int column_tiles, int parts, bool by_chunk, int row_tiles>
struct RowWeights {
  using H = HalfOf<W>;
  static constexpr int kRows = row_tiles * kTileRows, kSlotBytes = kRows * kLine;
  // Deeper, the ring holds up the inputs of the product itself and of the kernels that run beside it.
  static constexpr int kDepth = row_tiles == 1 ? 5 : 3;
  static_assert(row_tiles == 1 || !by_chunk);
  static constexpr bool kScaled = kIsCode<W> && !by_chunk;
  using Rows = TileRows<kRows>;
  using Fold = float[kFewWarps][8 * column_tiles][kRows + 1];
  __host__ __device__ static constexpr int steps(int cols) { return cols / kChunk<W>; }

  // [parts][T][pitch], in shared memory or (inputs of the arguments) where they are.
  struct Inputs {
    const H* rows;
    int pitch;
  };
  __host__ __device__ static constexpr size_t input_bytes(int tokens, int cols) { return size_t(tokens) * parts * size_t(cols + kPad) * sizeof(H); }
  // Prepared here, or copied.
  __device__ static Inputs place(const FewArgs& a, uint8_t* shared) {
    H* const rows = reinterpret_cast<H*>(shared);
    const int pitch = a.p.cols + kPad;
    if (a.inputs) {
      wait_for_previous();
      const int pieces = a.p.cols / 8;
      const auto* from = static_cast<const uint4*>(a.inputs);
      const int all = a.p.tokens * parts * pieces;
      constexpr int kAtOnce = kIsCode<W> ? 8 : 4;  // loads on their way; more take registers of weights in f16 and bf16
      for (int first = threadIdx.x; first < all; first += kAtOnce * kFewThreads) {
        uint4 held[kAtOnce];
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k)
          if (first + k * kFewThreads < all) held[k] = __ldcg(from + first + k * kFewThreads);
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) {
          const int i = first + k * kFewThreads;
          if (i < all) *reinterpret_cast<uint4*>(rows + i / pieces * pitch + i % pieces * 8) = held[k];
        }
      }
    } else {
      for (int t = 0; t < a.p.tokens; ++t)
        prepare_row<2>(a.prologue, a.x + size_t(t) * a.x_stride, a.p.cols, a.norm_weight, a.eps, 0, 1,
                       [&](int k, const float v[8]) { store_parts<H, parts>(rows + t * pitch + k, size_t(a.p.tokens) * pitch, v); }, wait_for_previous);
    }
    __syncthreads();
    return {rows, pitch};
  }

  class Summing {
   public:
    __device__ explicit Summing(uint8_t* slot) : ring_(slot) {}
    __device__ void begin(const FewArgs& a, const Inputs& inputs) {
      part_stride_ = size_t(a.p.tokens) * inputs.pitch;
      const int lane = threadIdx.x % 32;
#pragma unroll
      for (int j = 0; j < column_tiles; ++j)
        in_[j] = lane / 4 + 8 * j < a.p.tokens ? inputs.rows + size_t(lane / 4 + 8 * j) * inputs.pitch + lane % 4 * (16 / sizeof(W)) : nullptr;
      // Inputs come from shared memory or a cache: one chunk ahead hides that.
      next_.load(in_, part_stride_, few_warp() < steps(a.p.cols) ? few_warp() * kChunk<W> : 0);
    }
    template <class Walk>
    __device__ void leave(const FewArgs& a, int index, Walk& walk, Fold& fold) {
      float sums[row_tiles][column_tiles][2][4] = {};
      const Tile<kRows> tile(a, index);
      ChunkScales scales;
      const int begin = few_warp() * kChunk<W>;
      if constexpr (by_chunk) if (begin < a.p.cols) scales.fetch(tile, a.p.cols, begin);
      for (int col = begin; col < a.p.cols; col += kFewWarps * kChunk<W>) {
        ring_wait<RowWeights>();
        __syncwarp();
        uint8_t* weights = ring_ + slot_ * kRingStep<RowWeights>;
        const ChunkInputs<W, column_tiles, parts> now = next_;
        const int following = col + kFewWarps * kChunk<W>;
        next_.load(in_, part_stride_, following < a.p.cols ? following : begin);
        if constexpr (by_chunk) {
          const float by[2] = {scales.next[0], scales.next[1]};
          if constexpr (row_tiles == 1) if (following < a.p.cols) scales.fetch(tile, a.p.cols, following);
          float some[column_tiles][2][4] = {};
          multiply_chunk<W, column_tiles, parts>(some, weights, now);
#pragma unroll
          for (int j = 0; j < column_tiles; ++j)
#pragma unroll
            for (int i = 0; i < 4; ++i) sums[0][j][0][i] = fmaf(some[j][0][i] + some[j][1][i], by[i / 2], sums[0][j][0][i]);
        } else {
#pragma unroll
          for (int r = 0; r < row_tiles; ++r) multiply_chunk<W, column_tiles, parts>(sums[r], weights + r * kTileRows * kLine, now);
        }
        __syncwarp();  // all have read what is overwritten now
        walk.copy(shared_address(weights));
        if (++slot_ == kDepth) slot_ = 0;
      }
      const int lane = threadIdx.x % 32;
#pragma unroll
      for (int r = 0; r < row_tiles; ++r)
#pragma unroll
        for (int j = 0; j < column_tiles; ++j)
#pragma unroll
          for (int i = 0; i < 4; ++i)
            fold[few_warp()][8 * j + lane % 4 * 2 + i % 2][r * kTileRows + lane / 4 + i / 2 * 8] = sums[r][j][0][i] + sums[r][j][1][i];
    }

   private:
    uint8_t* ring_;
    const H* in_[column_tiles];
    size_t part_stride_;
    ChunkInputs<W, column_tiles, parts> next_;
    int slot_ = 0;
  };

  // What a thread stores of a tile is a row of it and a token; under a gate, half of the threads have a row of both weights.
  struct Store {
    static_assert(8 * column_tiles * kRows <= kFewThreads);
    Tile<kRows> tile;
    int row, token;
    bool there;
    float start = 0, scale = 1, up_scale = 1;  // read long before they are used
    __device__ Store(const FewArgs& a, int index) : tile(a, index) {
      const int r = int(threadIdx.x) % kRows;
      token = int(threadIdx.x) / kRows, row = tile.row + r;
      const Output& o = *tile.out;
      there = token < a.p.tokens && row < o.rows && !(tile.gated && r >= kRows / 2);
      if (!there) return;
      if (kScaled) {
        scale = o.scales[row];
        if (tile.gated) up_scale = tile.out[1].scales[row];
      }
      if (tile.gated) return;
      if (o.accumulate) start = __ldcg(o.y + size_t(token) * o.y_stride + row);
      if (o.bias) start += o.bias[row];
    }
    __device__ void finish(const FewArgs& a, const Fold& fold) const {
      if (!there) return;
      const Output& o = *tile.out;
      const int r = row - tile.row;
      float v = 0, up = 0;
#pragma unroll
      for (int i = 0; i < kFewWarps; ++i) v += fold[i][token][r];
      if (!tile.gated) {
        o.y[size_t(token) * o.y_stride + row] = kScaled ? fmaf(v, scale, start) : start + v;
        return;
      }
#pragma unroll
      for (int i = 0; i < kFewWarps; ++i) up += fold[i][token][r + kRows / 2];
      store_element(o.y, o.y_type, size_t(token) * o.y_stride + row, gated(a.p.gate, v * scale, up * up_scale));
    }
  };
};

}  // namespace sluice::kernels::cuda
