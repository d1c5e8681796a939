// Attention of sequences that have few tokens in the step, which is what decoding is: the cache's bytes are all that counts. A
// block takes up to 16 rows - tokens times the query heads that share a KV head - over a part of a sequence's positions (a
// split); its warps take tiles of 16 positions in turn, keys and values straight from memory to registers. Products are
// transposed so that positions and elements fill the tensor cores' 16 rows and the few query rows their 8 columns:
//   scores^T [16 positions, 8 rows] = keys [16, D] * queries^T;  out^T [D, 8 rows] += values^T [D, 16] * weights^T.
// Sums run in whatever order the loads bring (as in linear_few.cu). A row's maximum and sum are kept as it goes (online
// softmax: Milakov and Gimelshein, arXiv 1805.02867); warps are merged in shared memory, splits by the last block of a unit to
// finish (flash-decoding: Dao and others, 2023). Where the call appends too (AttentionArgs::append), a block rotates its own queries,
// and writes the sequence's new keys and values that lie in its split before it reads them: a kernel less on the way.
#include <algorithm>

#include "kernels/cuda/attention_rows.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/rope.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kTile = 16;
// Where a kernel attends for few sequences and appends, there are few blocks, and what takes time is one load after another.
// Eight warps of 168 registers fit beside a product's block; codes need more of them, and their warps take two tiles at once.
template <class T, int dim, int column_tiles, bool together>
constexpr int kWarpsOf = together && column_tiles == 1 && dim <= 128 && !kIsCode<T> ? 8 : 4;
// Tiles that a warp takes at once: as many bytes of codes are on their way as of halves.
template <class T> constexpr int kTiles = kIsCode<T> ? 2 : 1;
template <class T, int warps> constexpr int kRound = warps * kTile * kTiles<T>;
constexpr int kFetched = 256;        // positions that a block asks the cache for before it may read them, at most
constexpr int kSplitLeast = 192;     // positions that a split should have at least

struct Splits {
  int count, row_tiles;
  float* parts;     // [unit][split][rows][D + 4]: unnormalised sums, maximum, sum of weights
  int* arrivals;    // [unit], zero between launches
  FewOf of;         // which sequences; of few rows on 9.0
};

template <int rows, int round>
__device__ inline bool find_part(const AttentionArgs& a, const Splits& s, Part& p) {
  p.sequence = blockIdx.x / s.row_tiles;
  if (!kHopper && s.of.sequence >= 0) p.sequence = s.of.sequence;
  p.head = blockIdx.y;
  p.row = blockIdx.x % s.row_tiles * rows;
  p.token = a.batch.query_begin[p.sequence];
  p.tokens = a.batch.query_begin[p.sequence + 1] - p.token;
  const int all_rows = p.tokens * (a.q_heads / a.kv_heads);
  const bool is_prompt = all_rows > max(kFewRows, a.q_heads / a.kv_heads);
  if (p.row >= all_rows || is_prompt != (!kHopper && s.of.prompts)) return false;
  p.rows = min(rows, all_rows - p.row);
  p.end = a.batch.kv_len[p.sequence];
  // Positions that some row sees: of a prompt's tile of rows they may be far fewer than the sequence's. It does not append.
  int earliest = p.end - p.tokens, end = p.end;
  if (is_prompt) {
    const int group = a.q_heads / a.kv_heads;
    end = earliest + (p.row + p.rows - 1) / group + 1, earliest += p.row / group;
  }
  const int first = a.window > 0 ? max(0, earliest - a.window + 1) / kTile * kTile : 0;
  const int each = (max(kSplitLeast, (end - first + s.count - 1) / s.count) + round - 1) / round * round;
  p.splits = (end - first + each - 1) / each;
  p.from = first + int(blockIdx.z) * each;
  p.to = min(end, p.from + each);
  return int(blockIdx.z) < p.splits;
}

// What a block has to rotate and to append, in pieces that a thread takes each (RopePiece): its rows' queries, then a key and a value of
// each new token in its split.
struct Appending {
  const Part& p;
  int pieces, group, q_heads, kv_heads, queries, all, first;  // first: new token
  __device__ Appending(const RopeAppendArgs& a, const Part& p) : p(p), pieces(a.head_dim / 16), group(a.q_heads / a.kv_heads), q_heads(a.q_heads), kv_heads(a.kv_heads) {
    const int before = p.end - p.tokens;
    first = max(0, p.from - before);
    queries = p.rows * pieces;
    all = queries + 2 * pieces * max(0, min(p.tokens, p.to - before) - first);
  }
  template <class T>
  __device__ RopePiece<T> piece(const RopeAppendArgs& a, int index) const {
    const int i = min(index, all - 1), row = p.row + i / pieces, j = i - queries;
    if (j < 0) return {a, p.token + row / group, p.head * group + row % group, i % pieces};
    return {a, p.token + first + j / (2 * pieces), q_heads + j / pieces % 2 * kv_heads + p.head, j % pieces};
  }
  // Rotated queries go to shared memory: [rows][dim + 4].
  template <class T>
  __device__ void finish(const RopeAppendArgs& a, const RopePiece<T>& piece, int index, float* rotated) const {
    const auto from = piece.input(a);
    float x[2][8];
    load_floats(from, from.from + piece.low, x[0]);
    load_floats(from, from.from + piece.high, x[1]);
    piece.finish(a, x, index < all, [&] {
      float* to = rotated + index / pieces * (a.head_dim + 4);
      store8(to + piece.low, x[0]);
      store8(to + piece.high, x[1]);
    });
  }
};

constexpr int kMostSplits = 64;

// Rows of `count` (at most kMostSplits) partial results, `step` floats apart, folded in order: four elements a thread. The
// result goes to `to_parts`, or where that is null, to the output. All threads of the block; shares: shared memory.
template <int dim, int kWarps>
__device__ inline void merge_rows(const float* from, size_t step, int count, const Part& p, const AttentionArgs& a, float* to_parts,
                                  float2 (*shares)[kMostSplits]) {
  constexpr int kPitch = dim + 4;
  const int group = a.q_heads / a.kv_heads;
  for (int i = threadIdx.x; i < p.rows * count; i += kWarps * 32)
    shares[i / count][i % count] = *reinterpret_cast<const float2*>(from + i % count * step + i / count * kPitch + dim);
  __syncthreads();
  for (int i = threadIdx.x; i < p.rows * (dim / 4); i += kWarps * 32) {
    const int r = i / (dim / 4), d = i % (dim / 4) * 4;
    float4 sum{};
    float highest = -INFINITY, total = 0;
    for (int k = 0; k < count; ++k) highest = fmaxf(highest, shares[r][k].x);
#pragma unroll 16
    for (int k = 0; k < count; ++k) {
      const float4 v = *reinterpret_cast<const float4*>(from + k * step + r * kPitch + d);
      const float2 part = shares[r][k];
      const float share = part.x == -INFINITY ? 0.0f : exp2_fast(part.x - highest);
      sum.x = fmaf(share, v.x, sum.x), sum.y = fmaf(share, v.y, sum.y), sum.z = fmaf(share, v.z, sum.z), sum.w = fmaf(share, v.w, sum.w);
      total = fmaf(share, part.y, total);
    }
    if (to_parts) {
      *reinterpret_cast<float4*>(to_parts + r * kPitch + d) = sum;
      if (d == 0) *reinterpret_cast<float2*>(to_parts + r * kPitch + dim) = {highest, total};
      continue;
    }
    const float share = 1.0f / total;
    const int at = p.row + r;
    const size_t to = size_t(p.token + at / group) * a.out_stride + size_t(p.head * group + at % group) * dim + d;
    store_pair(a.out, to, sum.x * share, sum.y * share);
    store_pair(a.out, to + 2, sum.z * share, sum.w * share);
  }
}

// together: the call rotates and appends, too, in steps of few sequences. There is time before such a kernel may begin, which its first loads use; with
// many sequences registers count, of which this takes more.
template <class T, int dim, int column_tiles, bool together>
__global__ void __launch_bounds__((kWarpsOf<T, dim, column_tiles, together> * 32)) __maxnreg__((kWarpsOf<T, dim, column_tiles, together> == 8 ? 168 : 255)) few_attention_kernel(const __grid_constant__ AttentionArgs a, const __grid_constant__ RopeAppendArgs append, Splits splits) {
  using R = Rows<T, dim, column_tiles>;
  constexpr int kWarps = kWarpsOf<T, dim, column_tiles, together>;
  constexpr int kPitch = dim + 4;
  auto* const shared = reinterpret_cast<float*>(dynamic_shared());
  __shared__ float2 shares[R::kRows][kMostSplits];
  __shared__ bool last;
  let_next_begin();
  Part p;
  if (!find_part<R::kRows, kRound<T, kWarps>>(a, splits, p)) {
    // Most blocks of a recorded step have nothing to do, and must not stand in the way of the next kernel's. The grid's end is the
    // end of what was before it all the same, as long as one block waits.
    if (blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0) wait_for_previous();
    return;
  }
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int32_t* blocks = a.batch.block_ids + a.batch.block_begin[p.sequence];
  const auto block_of = [&](int position) { return blocks[position / a.batch.block_tokens]; };
  const auto place = [&](int block, int position, size_t stride) {
    return row_place<T>(a.batch, stride, block, p.head, a.kv_heads, position % a.batch.block_tokens, dim);
  };
  constexpr int n = kTiles<T>;
  // What lies past the sequence's end is not looked at: the last tile there is stands for it.
  const auto find_blocks = [&](int (&found)[n], int position) {
#pragma unroll
    for (int i = 0; i < n; ++i) found[i] = block_of(min(position + i * kTile, p.end - 1));
  };
  const auto load_keys = [&](Keys<T, dim> (&keys)[n], const int (&in)[n], int position) {
#pragma unroll
    for (int i = 0; i < n; ++i) keys[i].load(a.cache.keys, place(in[i], position + i * kTile, a.cache.key_stride));
  };
  const auto load_values = [&](Values<T, dim> (&values)[n], const int (&in)[n], int position) {
#pragma unroll
    for (int i = 0; i < n; ++i)
      values[i].load(a.cache.values, place(in[i], position + i * kTile, a.cache.value_stride), p.end - position - i * kTile);
  };
  // What later rounds read, from `after` positions on: while the kernels before this one run, it comes as far as the cache.
  const auto fetch_rest = [&](int after) {
    constexpr int kLines = (kTile * dim * int(sizeof(T)) + 127) / 128;
    const int first = p.from + after, lines = 2 * kLines * min(kFetched / kTile, max(0, (p.to - first + kTile - 1) / kTile));
#pragma unroll 1
    for (int i = threadIdx.x; i < lines; i += kWarps * 32) {
      const int at = first + i / (2 * kLines) * kTile, line = i % kLines, b = block_of(at);
      const bool is_value = i / kLines % 2;
      const size_t row = place(b, at, is_value ? a.cache.value_stride : a.cache.key_stride).row;
      fetch_line(static_cast<const uint8_t*>(is_value ? a.cache.values : a.cache.keys) + row + line * 128);
    }
  };
  const float scale = a.softcap > 0 ? a.scale : a.scale * kLog2E;

  if constexpr (together) fetch_rest(kRound<T, kWarps>);
  int position = p.from + warp * kTile * n;
  Keys<T, dim> keys[n];
  Values<T, dim> values[n];
  int block[n] = {}, next_block[n] = {};
  if (position < p.to) find_blocks(block, position);
  // What earlier steps left in the cache need not be waited for.
  const bool early = position < p.to && position + kTile * n <= p.end - p.tokens;
  if (early) load_keys(keys, block, position);
  if constexpr (together) {
    if (early) load_values(values, block, position);
    const Appending work(append, p);
    const RopePiece<T> first = work.piece<T>(append, threadIdx.x);
    wait_for_previous();
    work.finish(append, first, threadIdx.x, shared);
    for (int round = kWarps * 32; round < work.all; round += kWarps * 32)  // all threads of a warp come to each
      work.finish(append, work.piece<T>(append, round + threadIdx.x), round + threadIdx.x, shared);
    __syncthreads();
  } else {
    wait_for_previous();
  }
  if (position < p.to && !early) {
    load_keys(keys, block, position);
    if constexpr (together) load_values(values, block, position);
  }
  R rows;
  rows.begin(a, p, together ? shared : nullptr);
  if constexpr (together) __syncthreads();  // the queries' place is the results'
  constexpr int kStep = kRound<T, kWarps>;
  if (position + kStep < p.to) find_blocks(next_block, position + kStep);
  for (; position < p.to; position += kStep) {
    if constexpr (!together) load_values(values, block, position);
    float s[n][column_tiles][4], scales[n][2];
#pragma unroll
    for (int i = 0; i < n; ++i) {
      attend_tile(rows, keys[i], s[i]);
#pragma unroll
      for (int k = 0; k < 2; ++k) scales[i][k] = kIsCode<T> ? scale * keys[i].scale[k] : scale;
      block[i] = next_block[i];
    }
    if (position + kStep < p.to) load_keys(keys, block, position + kStep);
    if (position + 2 * kStep < p.to) find_blocks(next_block, position + 2 * kStep);
    weigh(rows, s, position + lane / 4, scales, a.softcap, values);
#pragma unroll
    for (int i = 0; i < n; ++i) {
      if constexpr (!kHopper) {
        if (p.tokens > 1) spoil(rows, values[i], s[i], position + i * kTile);
      }
      add_values(rows, values[i], s[i]);
    }
    if constexpr (together) {
      if (position + kStep < p.to) load_values(values, block, position + kStep);
    }
  }
  leave_rows(rows, shared);
  __syncthreads();

  const bool whole = p.splits == 1;
  const int unit = blockIdx.x * gridDim.y + blockIdx.y;
  const size_t split_floats = size_t(R::kRows) * kPitch;
  float* parts = splits.parts + size_t(unit) * splits.count * split_floats;
  merge_rows<dim, kWarps>(shared, split_floats, kWarps, p, a, whole ? nullptr : parts + blockIdx.z * split_floats, shares);
  if (whole) return;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) last = atomicAdd(&splits.arrivals[unit], 1) == p.splits - 1;
  __syncthreads();
  if (!last) return;
  __threadfence();
  merge_rows<dim, kWarps>(parts, split_floats, p.splits, p, a, nullptr, shares);
  if (threadIdx.x == 0) splits.arrivals[unit] = 0;
}

template <class T, int dim, int column_tiles, bool together>
void launch_few(CudaContext* c, const AttentionArgs& a, const RopeAppendArgs* append, int row_tiles, FewOf of) {
  constexpr int kWarps = kWarpsOf<T, dim, column_tiles, together>;
  constexpr size_t kShared = size_t(kWarps) * 8 * column_tiles * (dim + 4) * sizeof(float);
  const auto kernel = few_attention_kernel<T, dim, column_tiles, together>;
  if (kShared > 48 * 1024) note(c, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(kShared)));
  const int sequences = of.sequence >= 0 ? 1 : a.batch.num_sequences, units = sequences * row_tiles * a.kv_heads;
  // As many blocks as fit the device at once; where that would be fewer than two for each unit, twice as many: they are long, and
  // some would be left over at the end.
  static const int resident = [&] {
    int blocks = 1;
    cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, kWarps * 32, kShared);
    return std::max(blocks, 1);
  }();
  const int fit = resident * c->processors, wanted = fit / units >= 2 ? fit / units : (2 * fit + units / 2) / units;
  const int count = std::clamp(std::min(wanted, kSplitUnits / units), 1, kMostSplits);
  const Splits splits{count, row_tiles, c->splits, c->arrivals, of};
  const dim3 grid(unsigned(sequences * row_tiles), unsigned(a.kv_heads), unsigned(count));
  note(c, launch_early({c, a.batch.num_tokens}, grid, kWarps * 32, kShared, kernel, a, together ? *append : RopeAppendArgs{}, splits));
}

template <class T, int dim, bool together>
void choose_rows(CudaContext* c, const AttentionArgs& a, const RopeAppendArgs* append, int most, FewOf of) {
  // Registers hold the sums of 16 rows of up to 128 elements, or of 8 rows of more.
  if (most <= 8 || dim > 128) launch_few<T, dim, 1, together>(c, a, append, (most + 7) / 8, of);
  else if constexpr (dim <= 128) launch_few<T, dim, 2, together>(c, a, append, (most + 15) / 16, of);
}

template <class T, bool together>
void choose_dim(CudaContext* c, const AttentionArgs& a, const RopeAppendArgs* append, int most, FewOf of) {
  switch (a.head_dim) {
    case 64: return choose_rows<T, 64, together>(c, a, append, most, of);
    case 80: return choose_rows<T, 80, together>(c, a, append, most, of);
    case 96: return choose_rows<T, 96, together>(c, a, append, most, of);
    case 128: return choose_rows<T, 128, together>(c, a, append, most, of);
    case 256: return choose_rows<T, 256, together>(c, a, append, most, of);
  }
}

}  // namespace

bool tensor_cores_take(const AttentionArgs& a) noexcept {
  const int d = a.head_dim;
  return a.cache.type.keys != CacheElement::kF32 && (d == 64 || d == 80 || d == 96 || d == 128 || d == 256) && a.q_stride % 4 == 0 &&
         reinterpret_cast<uintptr_t>(a.q.data) % 16 == 0;
}

void attend_few(CudaContext* c, const AttentionArgs& a, const RopeAppendArgs* append, int most_rows, FewOf of) noexcept {
  with_element(a.cache.type.keys, [&]<class T>() {
    if constexpr (!std::is_same_v<T, float>) append ? choose_dim<T, true>(c, a, append, most_rows, of) : choose_dim<T, false>(c, a, append, most_rows, of);
  });
}

}  // namespace sluice::kernels::cuda
