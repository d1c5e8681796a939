// Attention of sequences with many tokens in the step (prompts): tensor cores by warpgroup. A block takes 128 rows of one
// sequence and KV head - tokens times the query heads that share it - two warpgroups of 64, and walks the positions in tiles:
// scores of a tile, online softmax in registers, and the weights, still in registers, times the values. Keys and values come
// through two stages of shared memory, the next tile under way while this one is computed. Codes of a quantised cache come to a third
// place, each thread's own, and become f16 in the stages while the tensor cores work. The order is FlashAttention's (Dao,
// arXiv 2307.08691; Shah and others, arXiv 2407.08608); blocks that have most to do are first in the grid.
#include <algorithm>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/cache.cuh"
#include "kernels/cuda/prologue.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kRows = 128, kThreads = 256;
constexpr float kLog2E = 1.4426950408889634f;

template <int dim>
struct Sizes {
  static constexpr int kKeys = dim <= 128 ? 128 : 64, kPanels = (dim + 63) / 64, kPieces = dim / 8;
  static constexpr int kLanes = kPieces <= 8 ? 8 : kPieces <= 16 ? 16 : 32, kPass = kThreads / kLanes;  // threads a row, rows a pass
  static constexpr int kQueryPanel = kRows * 128, kKeyPanel = kKeys * 128, kStage = kKeyPanel * kPanels;
  static constexpr int kShared = kQueryPanel * kPanels + 4 * kStage + 1024;  // to begin at a multiple of 1,024
  // Of codes, 16 bytes a thread and pass.
  static constexpr int kCodePieces = dim / 16, kCodeLanes = kCodePieces <= 4 ? 4 : kCodePieces <= 8 ? 8 : 16, kCodePass = kThreads / kCodeLanes;
  static constexpr int kCodePasses = kKeys / kCodePass, kCodeBytes = kCodePasses * kThreads * 16;
};

__device__ inline float exp2_fast(float v) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(v));
  return y;
}
// Where 16-byte piece c of row r lies among panels of `panel` bytes.
__device__ inline uint32_t piece_at(int r, int c, int panel) { return uint32_t(c / 8 * panel + r * 128 + ((c ^ r) & 7) * 16); }

// Sequence and first row of this block, counting tiles of rows from the last; false: there are fewer tiles.
struct Work {
  int sequence, row;
};
__device__ inline bool find_work(const AttentionArgs& a, Work& work) {
  __shared__ int sums[kThreads / 32];
  __shared__ Work found;
  const int group = a.q_heads / a.kv_heads, S = a.batch.num_sequences, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int each = (S + kThreads - 1) / kThreads, begin = min(S, int(threadIdx.x) * each), end = min(S, begin + each);
  const auto tiles = [&](int s) {
    const int rows = (a.batch.query_begin[s + 1] - a.batch.query_begin[s]) * group;
    return rows > max(kFewRows, group) ? (rows + kRows - 1) / kRows : 0;
  };
  int mine = 0;
  for (int s = begin; s < end; ++s) mine += tiles(s);
  int before = mine;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int v = __shfl_up_sync(0xFFFFFFFFu, before, step);
    if (lane >= step) before += v;
  }
  if (lane == 31) sums[warp] = before;
  __syncthreads();
  int total = 0;
  for (int w = 0; w < kThreads / 32; ++w) {
    if (w == warp) before += total - mine;
    total += sums[w];
  }
  const int wanted = total - 1 - int(blockIdx.x);
  if (wanted < 0) return false;
  if (wanted >= before && wanted < before + mine) {
    int s = begin, at = before;
    while (wanted >= at + tiles(s)) at += tiles(s++);
    found = {s, (wanted - at) * kRows};
  }
  __syncthreads();
  work = found;
  return true;
}

template <int dim>
struct Shared {
  using Z = Sizes<dim>;
  uint8_t* base;
  __device__ explicit Shared(uint8_t* raw) : base(raw + (1024 - shared_address(raw) % 1024) % 1024) {}
  __device__ uint8_t* queries() const { return base; }
  __device__ uint8_t* keys(int stage) const { return base + Z::kQueryPanel * Z::kPanels + stage * Z::kStage; }
  __device__ uint8_t* values(int stage) const { return keys(2 + stage); }
  __device__ uint8_t* codes(int which) const { return keys(4) + which * Z::kCodeBytes; }  // of keys, of values
};

// Where the 16 positions of each group of a tile are in the cache, in units of 16 bytes. Blocks are whole groups.
template <class T, int dim>
__device__ inline void find_places(const AttentionArgs& a, const int32_t* blocks, int head, int from, int end, uint32_t* places) {
  if (threadIdx.x >= Sizes<dim>::kKeys / 16) return;
  const int position = min(from + int(threadIdx.x) * 16, (end - 1) / 16 * 16), block = position / a.batch.block_tokens;
  places[threadIdx.x] = uint32_t(row_place<T>(a.batch, a.cache.key_stride, blocks[block], head, a.kv_heads, position % a.batch.block_tokens, dim).row / 16);
}

// What scores and weights of a tile's positions take from their scales: the key's, times what scores are scaled by, and ValueScale.
template <int dim>
struct Scales {
  float key[Sizes<dim>::kKeys], log2[Sizes<dim>::kKeys], inverse[Sizes<dim>::kKeys];
};
// A thread has a key's scale or a value's: fetched early, placed late.
template <class T, int dim>
__device__ inline float fetch_scale(const AttentionArgs& a, const int32_t* blocks, int head, int from, int end) {
  const int position = from + int(threadIdx.x) % 128;
  if (threadIdx.x % 128 >= Sizes<dim>::kKeys || position >= end) return 1;
  const bool is_key = threadIdx.x < 128;
  const int block = position / a.batch.block_tokens;
  const size_t stride = is_key ? a.cache.key_stride : a.cache.value_stride;
  return cache_scale(is_key ? a.cache.keys : a.cache.values,
                     row_place<T>(a.batch, stride, blocks[block], head, a.kv_heads, position % a.batch.block_tokens, dim).scale);
}
template <int dim>
__device__ inline void place_scale(float scale, float of_scores, Scales<dim>& to) {
  const int i = threadIdx.x % 128;
  if (i >= Sizes<dim>::kKeys) return;
  if (threadIdx.x < 128) return void(to.key[i] = scale * of_scores);
  const ValueScale v = value_scale(scale);
  to.log2[i] = v.log2, to.inverse[i] = v.inverse;
}

// Positions [from, from + kKeys) of keys or values; zeros from `end` on, since what lies there must not matter. A thread has one
// piece of every pass-th row, and what depends on the row is a constant or one of places. at(i): where pass i goes.
template <int lanes, int pieces, int passes, class At>
__device__ inline void fetch_rows(const void* cache, int row_bytes, const uint32_t* places, int left, At at) {
  constexpr int kPass = kThreads / lanes;
  static_assert(kPass % 8 == 0);
  const int row = int(threadIdx.x) / lanes, c = int(threadIdx.x) % lanes;
  if (c >= pieces) return;
  const uint8_t* const base = static_cast<const uint8_t*>(cache) + row % 16 * row_bytes + 16 * c;
  uint32_t place[passes];
#pragma unroll
  for (int i = 0; i < passes; ++i) place[i] = kPass >= 16 ? places[i * (kPass / 16) + row / 16] : places[i / 2];
#pragma unroll
  for (int i = 0; i < passes; ++i) {
    const uint8_t* from = base + size_t(place[i]) * 16 + (kPass >= 16 ? 0 : i % 2 * 8 * row_bytes);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at(i)), "l"(from), "r"(i * kPass + row < left ? 16 : 0) : "memory");
  }
}
template <class T, int dim>
__device__ inline void fetch(const void* cache, const uint32_t* places, int from, int end, uint8_t* to) {
  using Z = Sizes<dim>;
  if constexpr (kIsCode<T>) {
    const uint32_t own = shared_address(to) + threadIdx.x * 16;
    fetch_rows<Z::kCodeLanes, Z::kCodePieces, Z::kCodePasses>(cache, dim, places, end - from, [&](int i) { return own + i * kThreads * 16; });
  } else {
    const uint32_t first = shared_address(to) + piece_at(int(threadIdx.x) / Z::kLanes, int(threadIdx.x) % Z::kLanes, Z::kKeyPanel);
    fetch_rows<Z::kLanes, Z::kPieces, Z::kKeys / Z::kPass>(cache, 2 * dim, places, end - from, [&](int i) { return first + i * Z::kPass * 128; });
  }
}
// This thread's codes to a stage, as f16.
template <class T, int dim>
__device__ inline void unpack(const uint8_t* codes, uint8_t* to) {
  using Z = Sizes<dim>;
  const int row = int(threadIdx.x) / Z::kCodeLanes, c = int(threadIdx.x) % Z::kCodeLanes;
  if (c >= Z::kCodePieces) return;
#pragma unroll
  for (int i = 0; i < Z::kCodePasses; ++i) {
    const uint4 v = *reinterpret_cast<const uint4*>(codes + (i * kThreads + threadIdx.x) * 16);
    const int r = row + i * Z::kCodePass;
    *reinterpret_cast<uint4*>(to + piece_at(r, 2 * c, Z::kKeyPanel)) = eight_halves<T>({v.x, v.y});
    *reinterpret_cast<uint4*>(to + piece_at(r, 2 * c + 1, Z::kKeyPanel)) = eight_halves<T>({v.z, v.w});
  }
}
__device__ inline void fetch_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int left>
__device__ inline void fetch_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(left) : "memory"); }

// Eight elements of a query, mixed as keys are; a row's lanes are neighbours, and all come here.
template <int dim>
__device__ inline uint4 mixed_eight(const ConstArray& q, size_t from, bool there) {
  constexpr int kBlock = mixed_block(dim);
  float x[8] = {};
  if (there) load_floats(q, from, x);
  mix_held(x, kBlock);
#pragma unroll
  for (int step = 1; 8 * step < kBlock; step *= 2)
#pragma unroll
    for (float& v : x) v = mix_lanes(v, step);
  const float factor = mix_factor(kBlock);
#pragma unroll
  for (float& v : x) v *= factor;
  return make_uint4(pair_of<__half>(x[0], x[1]), pair_of<__half>(x[2], x[3]), pair_of<__half>(x[4], x[5]), pair_of<__half>(x[6], x[7]));
}

template <class T, int dim>
__device__ inline void place_queries(const AttentionArgs& a, int token, int head, int row, int rows, uint8_t* to) {
  using Z = Sizes<dim>;
  const int group = a.q_heads / a.kv_heads, first = int(threadIdx.x) / Z::kLanes, c = int(threadIdx.x) % Z::kLanes;
  if (!kIsMixed<T> && c >= Z::kPieces) return;
  const size_t base = size_t(token) * a.q_stride + size_t(head) * group * dim + 8 * c;
#pragma unroll 8
  for (int i = 0; i < kRows; i += Z::kPass) {
    const int r = first + i, from = row + r;
    const size_t at = base + size_t(from / group) * a.q_stride + from % group * dim;
    uint4 v;
    if constexpr (kIsMixed<T>) v = mixed_eight<dim>(a.q, at, from < rows && c < Z::kPieces);
    else v = from < rows ? eight_of<HalfOf<T>>(a.q, at) : make_uint4(0, 0, 0, 0);
    if (c < Z::kPieces) *reinterpret_cast<uint4*>(to + piece_at(r, c, Z::kQueryPanel)) = v;
  }
}

// A thread's part of its warpgroup's 64 rows: rows lane / 4 and 8 more of its warp's 16; number i of an array is of row i / 2 % 2
// and column i / 4 * 8 + 2 (lane % 4) + i % 2.
template <class H, int dim>
struct Tile {
  using Z = Sizes<dim>;
  static constexpr int kMain = dim >= 128 ? 128 : 64, kRest = dim % kMain;
  float scores[Z::kKeys / 2], out[dim / kMain][kMain / 2], rest[kRest ? kRest / 2 : 1];
  uint32_t weights[Z::kKeys / 16][4];
  float highest[2], total[2], shrink[2];

  __device__ void begin() {
    for (auto& o : out)
#pragma unroll
      for (float& v : o) v = 0;
#pragma unroll
    for (float& v : rest) v = 0;
    highest[0] = highest[1] = -INFINITY, total[0] = total[1] = 0;
  }
  // Both of these leave their products under way, a group each.
  __device__ void score(uint32_t queries, uint32_t keys) {
    products_begin();
#pragma unroll
    for (int k = 0; k < dim / 16; ++k)
      multiply<H, Z::kKeys>(scores, matrix_at(queries + k / 4 * Z::kQueryPanel + k % 4 * 32, 0),
                            matrix_at(keys + k / 4 * Z::kKeyPanel + k % 4 * 32, 0), k != 0);
    products_commit();
  }
  __device__ void add_values(uint32_t values) {
    products_begin();
#pragma unroll
    for (int k = 0; k < Z::kKeys / 16; ++k) {
      const uint32_t from = values + k * 16 * 128;
#pragma unroll
      for (int n = 0; n < dim / kMain; ++n) add<H, kMain>(out[n], weights[k], matrix_at(from + n * (kMain / 64) * Z::kKeyPanel, Z::kKeyPanel));
      if constexpr (kRest != 0) add<H, kRest>(rest, weights[k], matrix_at(from + dim / 64 * Z::kKeyPanel, Z::kKeyPanel));
    }
    products_commit();
  }
  // What lies outside of what each of the two rows sees becomes -infinity.
  __device__ void hide(int from, const int last[2], const int first[2]) {
#pragma unroll
    for (int i = 0; i < Z::kKeys / 2; ++i) {
      const int at = from + i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2, row = i / 2 % 2;
      if (at > last[row] || at < first[row]) scores[i] = -INFINITY;
    }
  }
  __device__ void cap(float scale, float softcap) {
#pragma unroll
    for (float& s : scores) s = softcap * tanhf(s * scale / softcap);
  }
  // Of codes: scores as powers of two, the values' scales in them.
  __device__ void take_scales(const Scales<dim>& s, float softcap) {
#pragma unroll
    for (int i = 0; i < Z::kKeys / 2; i += 4) {
      const int at = i / 4 * 8 + threadIdx.x % 4 * 2;
      const float2 key = *reinterpret_cast<const float2*>(s.key + at), log2 = *reinterpret_cast<const float2*>(s.log2 + at);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float by = k % 2 ? key.y : key.x, plus = k % 2 ? log2.y : log2.x;
        scores[i + k] = softcap > 0 ? fmaf(softcap * kLog2E, tanhf(scores[i + k] * by / softcap), plus) : fmaf(scores[i + k], by, plus);
      }
    }
  }
  // Scores become weights, 2^(scale * (score - highest)); what was summed before has to shrink to match. inverse: of values' scales,
  // which weights take along, or null.
  template <bool coded>
  __device__ void weigh(float scale, const float* inverse) {
    float top[2] = {-INFINITY, -INFINITY}, base[2];
#pragma unroll
    for (int i = 0; i < Z::kKeys / 2; ++i) top[i / 2 % 2] = fmaxf(top[i / 2 % 2], scores[i]);
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      top[row] = fmaxf(top[row], __shfl_xor_sync(0xFFFFFFFFu, top[row], 1));
      top[row] = fmaxf(top[row], __shfl_xor_sync(0xFFFFFFFFu, top[row], 2));
      const float next = fmaxf(highest[row], top[row]);
      base[row] = next == -INFINITY ? 0.0f : next * scale;  // a row that has seen nothing yet: all weights come out as 0
      shrink[row] = exp2_fast(highest[row] * scale - base[row]);
      highest[row] = next;
      total[row] *= shrink[row];
    }
#pragma unroll
    for (int i = 0; i < Z::kKeys / 2; ++i) {
      scores[i] = exp2_fast(fmaf(scores[i], scale, -base[i / 2 % 2]));
      if constexpr (coded) total[i / 2 % 2] = fmaf(scores[i], inverse[i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2], total[i / 2 % 2]);
      else total[i / 2 % 2] += scores[i];
    }
  }
  // No products may be under way.
  __device__ void settle() {
    if (__any_sync(0xFFFFFFFFu, shrink[0] != 1 || shrink[1] != 1)) {  // seldom, once the largest scores were seen
      for (auto& o : out)
#pragma unroll
        for (int i = 0; i < kMain / 2; ++i) o[i] *= shrink[i / 2 % 2];
      if constexpr (kRest != 0) {
#pragma unroll
        for (int i = 0; i < kRest / 2; ++i) rest[i] *= shrink[i / 2 % 2];
      }
    }
#pragma unroll
    for (int k = 0; k < Z::kKeys / 16; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) weights[k][i] = pair_in_range<H>(scores[8 * k + 2 * i], scores[8 * k + 2 * i + 1]);
    }
  }
  __device__ void store(const AttentionArgs& a, int token, int head, const int row[2], int rows) {
    const int group = a.q_heads / a.kv_heads;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float sum = total[i];
      sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
      sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
      if (row[i] >= rows) continue;
      const float share = 1.0f / sum;
      const size_t to = size_t(token + row[i] / group) * a.out_stride + size_t(head * group + row[i] % group) * dim + threadIdx.x % 4 * 2;
#pragma unroll
      for (int n = 0; n < dim / kMain; ++n) {
#pragma unroll
        for (int c = 0; c < kMain / 8; ++c)
          store_pair(a.out, to + kMain * n + 8 * c, out[n][4 * c + 2 * i] * share, out[n][4 * c + 2 * i + 1] * share);
      }
      if constexpr (kRest != 0) {
#pragma unroll
        for (int c = 0; c < kRest / 8; ++c)
          store_pair(a.out, to + dim / kMain * kMain + 8 * c, rest[4 * c + 2 * i] * share, rest[4 * c + 2 * i + 1] * share);
      }
    }
  }
};

template <class T, int dim>
__global__ void __launch_bounds__(kThreads, 1) many_attention_kernel(const __grid_constant__ AttentionArgs a) {
  using Z = Sizes<dim>;
  using H = HalfOf<T>;
  constexpr bool kCoded = kIsCode<T>;
  extern __shared__ uint8_t raw[];
  let_next_begin();
  Work work;
  if (!find_work(a, work)) {  // as in attention_few.cu, one block waits for all that have nothing to do
    if (blockIdx.x == 0 && blockIdx.y == 0) wait_for_previous();
    return;
  }
  wait_for_previous();
  const Shared<dim> shared(raw);
  const int group = a.q_heads / a.kv_heads, head = blockIdx.y, token = a.batch.query_begin[work.sequence];
  const int tokens = a.batch.query_begin[work.sequence + 1] - token, rows = tokens * group;
  const int start = a.batch.kv_len[work.sequence] - tokens;  // position of the sequence's first token in the step
  const int32_t* blocks = a.batch.block_ids + a.batch.block_begin[work.sequence];
  const int lowest = start + work.row / group, end = start + (min(work.row + kRows, rows) - 1) / group + 1;
  const int begin = a.window > 0 ? max(0, lowest - a.window + 1) / Z::kKeys * Z::kKeys : 0;
  const float scale = a.softcap > 0 ? kLog2E : a.scale * kLog2E;

  const int in_group = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
  const int row[2] = {work.row + in_group, work.row + in_group + 8};
  int last[2], first[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    last[i] = start + row[i] / group;
    first[i] = a.window > 0 ? last[i] - a.window + 1 : 0;
  }
  const uint32_t queries = shared_address(shared.queries()) + threadIdx.x / 128 * 64 * 128;
  Tile<H, dim> tile;
  tile.begin();
  __shared__ Scales<kCoded ? dim : 64> scales[kCoded ? 2 : 1];
  const auto weigh = [&](int n) {
    const int from = begin + n * Z::kKeys;
    if constexpr (kCoded) tile.take_scales(scales[n % 2], a.softcap);
    else if (a.softcap > 0) tile.cap(a.scale, a.softcap);
    if (from + Z::kKeys - 1 > lowest || (a.window > 0 && from < end - a.window)) tile.hide(from, last, first);
    if constexpr (kCoded) tile.template weigh<true>(1, scales[n % 2].inverse);
    else tile.template weigh<false>(scale, nullptr);
  };
  // Keys are fetched two tiles ahead of the values' products, values one; a tile's number mod 2 is its stage.
  __shared__ uint32_t places[4][8];
  const int tiles = (end - begin + Z::kKeys - 1) / Z::kKeys;
  const auto find = [&](int n) { if (n < tiles) find_places<T, dim>(a, blocks, head, begin + n * Z::kKeys, end, places[n % 4]); };
  const auto fetch_keys = [&](int n) {
    if (n < tiles) fetch<T, dim>(a.cache.keys, places[n % 4], begin + n * Z::kKeys, end, kCoded ? shared.codes(0) : shared.keys(n % 2));
  };
  const auto fetch_values = [&](int n) {
    if (n < tiles) fetch<T, dim>(a.cache.values, places[n % 4], begin + n * Z::kKeys, end, kCoded ? shared.codes(1) : shared.values(n % 2));
  };
  const auto arrive = [&] {  // what was fetched is here for all, and all are done with what was computed
    fetch_wait<0>();
    publish_shared();
    __syncthreads();
  };
  if constexpr (kCoded) {
    // Codes are a tile further ahead: they come while the tile before them becomes f16, and both while a third is computed.
    const float of_scores = a.softcap > 0 ? a.scale : a.scale * kLog2E;
    const auto scale_of = [&](int n) { return n < tiles ? fetch_scale<T, dim>(a, blocks, head, begin + n * Z::kKeys, end) : 1.0f; };
    const auto unpack_keys = [&](int n) { if (n < tiles) unpack<T, dim>(shared.codes(0), shared.keys(n % 2)); };
    const auto unpack_values = [&](int n) { if (n < tiles) unpack<T, dim>(shared.codes(1), shared.values(n % 2)); };
    const auto arrive_unpacked = [&] {
      publish_shared();
      __syncthreads();
    };
    find(0), find(1), find(2), find(3);
    for (int n = 0; n < 2; ++n) place_scale<dim>(scale_of(n), of_scores, scales[n]);
    __syncthreads();
    fetch_keys(0), fetch_values(0);
    fetch_commit();
    place_queries<T, dim>(a, token, head, work.row, rows, shared.queries());
    fetch_wait<0>();
    unpack_keys(0), unpack_values(0);
    fetch_keys(1), fetch_values(1);
    fetch_commit();
    arrive_unpacked();
    tile.score(queries, shared_address(shared.keys(0)));
    fetch_wait<0>();
    unpack_keys(1);
    fetch_keys(2);
    fetch_commit();
    products_wait<0>();
    weigh(0);
    tile.settle();
    for (int n = 0; n + 1 < tiles; ++n) {
      arrive_unpacked();
      tile.score(queries, shared_address(shared.keys((n + 1) % 2)));
      tile.add_values(shared_address(shared.values(n % 2)));
      const float next_scale = scale_of(n + 2);
      fetch_wait<0>();
      unpack_keys(n + 2), unpack_values(n + 1);
      fetch_keys(n + 3), fetch_values(n + 2);
      fetch_commit();
      find(n + 4);
      place_scale<dim>(next_scale, of_scores, scales[n % 2]);
      products_wait<1>();
      weigh(n + 1);
      products_wait<0>();
      tile.settle();
    }
    publish_shared();
  } else {
    find(0), find(1), find(2);
    __syncthreads();
    fetch_keys(0);
    fetch_commit();
    place_queries<T, dim>(a, token, head, work.row, rows, shared.queries());
    arrive();
    fetch_keys(1), fetch_values(0);
    fetch_commit();
    tile.score(queries, shared_address(shared.keys(0)));
    products_wait<0>();
    weigh(0);
    tile.settle();
    for (int n = 0; n + 1 < tiles; ++n) {
      arrive();
      fetch_keys(n + 2), fetch_values(n + 1);
      fetch_commit();
      find(n + 3);
      tile.score(queries, shared_address(shared.keys((n + 1) % 2)));
      tile.add_values(shared_address(shared.values(n % 2)));
      products_wait<1>();
      weigh(n + 1);
      products_wait<0>();
      tile.settle();
    }
  }
  arrive();
  tile.add_values(shared_address(shared.values((tiles - 1) % 2)));
  products_wait<0>();
  tile.store(a, token, head, row, rows);
}

template <class T, int dim>
void launch_many(CudaContext* c, const AttentionArgs& a) {
  const auto kernel = many_attention_kernel<T, dim>;
  constexpr int kShared = Sizes<dim>::kShared + (kIsCode<T> ? 2 * Sizes<dim>::kCodeBytes : 0);
  note(c, cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared));
  const int group = a.q_heads / a.kv_heads;
  const int sequences = a.batch.num_prompts > 0 ? a.batch.num_prompts : a.batch.num_sequences;
  const size_t tiles = size_t(a.batch.num_tokens) * group / kRows + std::min(sequences, a.batch.num_tokens * group / kFewRows + 1);
  note(c, launch_early(c->stream, dim3(unsigned(tiles), unsigned(a.kv_heads)), kThreads, kShared, kernel, a));
}

template <class T>
void choose_dim(CudaContext* c, const AttentionArgs& a) {
  switch (a.head_dim) {
    case 64: return launch_many<T, 64>(c, a);
    case 80: return launch_many<T, 80>(c, a);
    case 96: return launch_many<T, 96>(c, a);
    case 128: return launch_many<T, 128>(c, a);
    case 256: return launch_many<T, 256>(c, a);
  }
}

}  // namespace

void attend_many(CudaContext* c, const AttentionArgs& a) noexcept {
  with_element(a.cache.type.keys, [&]<class T>() {
    if constexpr (!std::is_same_v<T, float>) choose_dim<T>(c, a);
  });
}

}  // namespace sluice::kernels::cuda
