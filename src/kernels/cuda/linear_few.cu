// Products of f16 and bf16 weights with few tokens: what decoding does, so the weights' bytes are all that counts. A block walks
// tiles of 16 output rows. One warp has a tile's rows copied to a ring of stages in shared memory, 512 columns a stage; eight
// warps take 64 columns of a stage each and multiply on tensor cores with the weights as the left factor. A chunk's columns are
// taken in the order in which a lane's 16-byte reads bring them; the inputs are read in the same order, and a sum does not mind.
// There is a block a processor and room for the next kernel's beside it, which can so fill its ring and the cache with weights
// while this one works. No float of a token depends on another's: a column of the product is folded from its own inputs, in an
// order that K alone decides.
#include <algorithm>

#include "kernels/cuda/half_types.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/pipeline.cuh"
#include "kernels/cuda/products.h"
#include "kernels/cuda/prologue.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kWarps = kPrologueThreads / 32, kThreads = kPrologueThreads + 32, kTileRows = 16;
constexpr int kChunk = 64, kStageCols = kWarps * kChunk, kStages = 5;
constexpr int kPitch = kStageCols * 2 + 64;  // bytes of a row of a stage: neighbours start half the banks apart
constexpr int kStageBytes = kTileRows * kPitch;
constexpr int kAhead = 8;                    // stages after the first kStages that the cache is told to get
constexpr int kPad = 32;                     // halves after a row of inputs in shared memory, for the same reason
constexpr int kFusedTokens = 2;              // up to here, blocks prepare their inputs themselves,
constexpr int kFusedCols = 8192;             // if rows are no longer than this

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

// A tile's place: an output and its first row.
struct Tile {
  const Output* out;
  int row;
  __device__ Tile(const FewArgs& a, int tile) {
    int i = 0;
    while (i + 1 < a.p.outputs && tile >= a.tile_end[i]) ++i;
    out = &a.p.out[i];
    row = (tile - (i ? a.tile_end[i - 1] : 0)) * kTileRows;
  }
};

struct Ring {
  uint8_t* stages;  // kStages of kStageBytes
  uint64_t *full, *empty;
};

// Goes through the stages of the block's tiles in order; at() is where row `lane` of the stage's columns begins.
struct Walk {
  const FewArgs& a;
  int index, col = 0, rows = 0;
  const uint8_t* from = nullptr;
  __device__ explicit Walk(const FewArgs& a) : a(a), index(blockIdx.x) { enter(); }
  __device__ bool more() const { return index < a.tile_end[a.p.outputs - 1]; }
  __device__ uint32_t bytes() const { return uint32_t(min(kStageCols, a.p.cols - col)) * 2; }
  __device__ const uint8_t* at() const { return from + size_t(col) * 2; }
  __device__ void next() {
    if ((col += kStageCols) < a.p.cols) return;
    col = 0, index += gridDim.x;
    enter();
  }
  __device__ void enter() {
    if (!more()) return;
    const Tile tile(a, index);
    rows = min(kTileRows, tile.out->rows - tile.row);
    from = tile.out->weight + size_t(tile.row + int(threadIdx.x % 32)) * tile.out->row_bytes;
  }
};

// One warp's work: keeps the ring full. Weights never change, so it waits for no earlier kernel.
__device__ inline void copy_weights(const FewArgs& a, const Ring& ring) {
  const int lane = threadIdx.x % 32;
  int count = 0, stage = 0;
  for (Walk walk(a); walk.more(); walk.next(), ++count, stage = stage + 1 == kStages ? 0 : stage + 1) {
    if (count == kStages) {
      Walk ahead = walk;
      for (int i = 0; i < kAhead && ahead.more(); ++i, ahead.next())
        if (lane < ahead.rows) fetch_to_cache(ahead.at(), ahead.bytes());
    }
    if (count >= kStages) barrier_wait(&ring.empty[stage], (count / kStages - 1) & 1);
    if (lane == 0) barrier_expect(&ring.full[stage], walk.bytes() * uint32_t(walk.rows));
    __syncwarp();
    if (lane < walk.rows) copy_bulk(ring.stages + stage * kStageBytes + lane * kPitch, walk.at(), walk.bytes(), &ring.full[stage]);
  }
}

// sums += one warp's 16 x 64 weights of a stage * inputs. weights: this lane's first, of rows lane / 4 and 8 below.
// in: the inputs of this lane's token (lane / 4) at the same columns, or null past the last token.
template <class H, int column_tiles, int parts>
__device__ inline void multiply_chunk(float sums[column_tiles][2][4], const uint8_t* weights, const H* const in[column_tiles], size_t part_stride, int col) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint4 u = *reinterpret_cast<const uint4*>(weights + half * 64), l = *reinterpret_cast<const uint4*>(weights + 8 * kPitch + half * 64);
#pragma unroll
    for (int part = 0; part < parts; ++part) {
#pragma unroll
      for (int j = 0; j < column_tiles; ++j) {
        uint4 x = make_uint4(0, 0, 0, 0);
        if (in[j]) x = *reinterpret_cast<const uint4*>(in[j] + part * part_stride + col + half * 32);
        mma<H>(sums[j][half], u.x, l.x, u.y, l.y, x.x, x.y);
        mma<H>(sums[j][half], u.z, l.z, u.w, l.w, x.z, x.w);
      }
    }
  }
}

template <class H, int column_tiles, int parts>
__device__ inline void multiply_tiles_of_block(const FewArgs& a, const Ring& ring, const H* inputs, int pitch) {
  __shared__ float folds[2][kWarps][8 * column_tiles][kTileRows + 1];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const size_t part_stride = size_t(a.p.tokens) * pitch;
  const H* in[column_tiles];
#pragma unroll
  for (int j = 0; j < column_tiles; ++j)
    in[j] = lane / 4 + 8 * j < a.p.tokens ? inputs + size_t(lane / 4 + 8 * j) * pitch + warp * kChunk + lane % 4 * 8 : nullptr;
  const uint8_t* weights = ring.stages + lane / 4 * kPitch + warp * kChunk * 2 + lane % 4 * 16;
  // A thread's output of a tile: a row of it and a token.
  const int out_row = threadIdx.x % kTileRows, out_token = threadIdx.x / kTileRows;
  int stage = 0, phase = 0, parity = 0;
  for (int index = blockIdx.x; index < a.tile_end[a.p.outputs - 1]; index += gridDim.x, parity ^= 1) {
    const Tile tile(a, index);
    const Output& o = *tile.out;
    const int row = tile.row + out_row;
    const bool mine = out_token < a.p.tokens && row < o.rows;
    float* y = o.y + size_t(out_token) * o.y_stride + row;
    float start = 0;
    if (mine && o.accumulate) start = __ldcg(y);
    if (mine && o.bias) start += o.bias[row];
    float sums[column_tiles][2][4] = {};
    for (int col = 0; col < a.p.cols; col += kStageCols) {
      barrier_wait(&ring.full[stage], phase);
      if (col + warp * kChunk < a.p.cols) multiply_chunk<H, column_tiles, parts>(sums, weights + stage * kStageBytes, in, part_stride, col);
      __syncwarp();
      if (lane == 0) barrier_arrive(&ring.empty[stage]);
      if (++stage == kStages) stage = 0, phase ^= 1;
    }
    auto& fold = folds[parity];
#pragma unroll
    for (int j = 0; j < column_tiles; ++j) {
#pragma unroll
      for (int i = 0; i < 4; ++i) fold[warp][8 * j + lane % 4 * 2 + i % 2][lane / 4 + i / 2 * 8] = sums[j][0][i] + sums[j][1][i];
    }
    meet<kPrologueThreads>();  // the other half of folds is read before the next of these
    if (mine) {
      float v = 0;
#pragma unroll
      for (int i = 0; i < kWarps; ++i) v += fold[i][out_token][out_row];
      *y = start + v;
    }
  }
}

template <class H, int column_tiles, int parts, bool fused>
__global__ void __launch_bounds__(kThreads, 2) few_kernel(const __grid_constant__ FewArgs a) {
  extern __shared__ __align__(128) uint8_t dynamic[];
  __shared__ uint64_t barriers[2 * kStages];
  const Ring ring{dynamic, barriers, barriers + kStages};
  let_next_begin();
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) barrier_init(&ring.full[i], 1), barrier_init(&ring.empty[i], kWarps);
    barriers_made();
  }
  __syncthreads();
  if (threadIdx.x >= kPrologueThreads) return copy_weights(a, ring);
  wait_for_previous();
  const H* inputs = static_cast<const H*>(a.inputs);
  int pitch = a.p.cols;
  if (fused) {
    pitch += kPad;
    H* rows = reinterpret_cast<H*>(dynamic + kStages * kStageBytes);
    for (int t = 0; t < a.p.tokens; ++t)
      prepare_row(a.prologue, a.x + size_t(t) * a.x_stride, a.p.cols, a.norm_weight, a.eps, 0, 1,
                  [&](int k, const float v[8]) { store_parts<H, parts>(rows + t * pitch + k, size_t(a.p.tokens) * pitch, v); });
    meet<kPrologueThreads>();
    inputs = rows;
  }
  multiply_tiles_of_block<H, column_tiles, parts>(a, ring, inputs, pitch);
}

template <class H, int column_tiles, int parts, bool fused>
void launch_few(CudaContext* c, const FewArgs& a) {
  const auto kernel = few_kernel<H, column_tiles, parts, fused>;
  const size_t shared = kStages * kStageBytes + (fused ? size_t(a.p.tokens) * parts * (a.p.cols + kPad) * sizeof(H) : 0);
  note(c, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(shared)));
  const int blocks = std::min(a.tile_end[a.p.outputs - 1], c->processors);
  note(c, launch_early(c->stream, dim3(unsigned(blocks)), kThreads, shared, kernel, a));
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
         reinterpret_cast<uintptr_t>(a.x) % 16 == 0;  // weights are at multiples of 64 bytes
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
