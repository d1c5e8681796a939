// Attention of sequences with many tokens in the step (prompts): tensor cores by warpgroup. A block takes 128 rows of one
// sequence and KV head - tokens times the query heads that share it - two warpgroups of 64, and walks the positions in tiles:
// scores of a tile, online softmax in registers, and the weights, still in registers, times the values. A third warpgroup brings keys
// and values to two stages of shared memory each and, where the cache holds codes, makes them f16 there; barriers in shared memory say what is
// there and what is done with, so that one warpgroup's softmax runs beside the other's products. The order is FlashAttention's (Dao,
// arXiv 2307.08691; Shah and others, arXiv 2407.08608); blocks that have most to do are first in the grid.
#include <algorithm>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/cache.cuh"
#include "kernels/cuda/prologue.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kRows = 128, kWorkers = 256, kBringers = 128, kThreads = kWorkers + kBringers;
// Registers of a thread of each kind: all that a processor has.
constexpr int kWorkerRegisters = 232, kBringerRegisters = 40;
constexpr float kLog2E = 1.4426950408889634f;

template <int dim>
struct Sizes {
  static constexpr int kKeys = dim <= 128 ? 128 : 64, kPanels = (dim + 63) / 64, kPieces = dim / 8;
  static constexpr int kLanes = kPieces <= 8 ? 8 : kPieces <= 16 ? 16 : 32, kPass = kWorkers / kLanes;  // threads a row of queries, rows a pass
  static constexpr int kQueryPanel = kRows * 128, kKeyPanel = kKeys * 128, kStage = kKeyPanel * kPanels;
  static constexpr int kShared = kQueryPanel * kPanels + 4 * kStage + 1024;  // to begin at a multiple of 1,024
  static constexpr int kCodeBytes = kKeys * (dim <= 64 ? 64 : dim <= 128 ? 128 : 256);  // of codes on their way: 16 bytes a thread and pass
  static constexpr int kCodeTiles = dim <= 128 ? 3 : 1;  // of keys and of values in turn, as many as there is room for
};
// How bringers share a tile's rows: pieces of 16 bytes a row, threads a row, rows a pass, passes.
template <class T, int dim>
struct Share {
  static constexpr int kPieces = dim * int(sizeof(T)) / 16, kLanes = kPieces <= 4 ? 4 : kPieces <= 8 ? 8 : kPieces <= 16 ? 16 : 32;
  static constexpr int kPass = kBringers / kLanes, kPasses = Sizes<dim>::kKeys / kPass;
  static_assert(!kIsCode<T> || kPasses * kBringers * 16 == Sizes<dim>::kCodeBytes);
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
  __device__ uint8_t* codes(int which) const { return keys(4) + which * Z::kCodeBytes; }
};

// Where the 16 positions of each group of a tile are in the cache, and their scales, in units of 16 bytes. Blocks are whole groups. me: of
// the bringers.
struct Places { uint32_t row[8], scale[8]; };
template <class T, int dim>
__device__ inline void find_places(const AttentionArgs& a, const int32_t* blocks, int head, int from, int end, int me, Places& places) {
  if (me >= Sizes<dim>::kKeys / 16) return;
  const int position = min(from + me * 16, (end - 1) / 16 * 16), block = position / a.batch.block_tokens;
  const RowPlace at = row_place<T>(a.batch, a.cache.key_stride, blocks[block], head, a.kv_heads, position % a.batch.block_tokens, dim);
  places.row[me] = uint32_t(at.row / 16), places.scale[me] = uint32_t(at.scale / 16);
}

// What scores and weights of a tile's positions take from their scales: the key's, times what scores are scaled by, and ValueScale.
template <int dim>
struct Scales {
  float key[Sizes<dim>::kKeys], log2[Sizes<dim>::kKeys], inverse[Sizes<dim>::kKeys];
};
// Scales of a tile as they lie in the cache, and what becomes of them; a bringer has a position.
template <int dim>
__device__ inline void fetch_scales(const void* cache, const Places& places, int me, uint16_t* to) {
  if (me >= Sizes<dim>::kKeys / 8) return;
  const auto* from = static_cast<const uint8_t*>(cache) + size_t(places.scale[me / 2]) * 16 + me % 2 * 16;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, 16;" ::"r"(shared_address(to + 8 * me)), "l"(from) : "memory");
}
__device__ inline float scale_of(uint16_t bits) { return __uint_as_float(uint32_t(bits) << 16); }
// left: positions of the tile that there are.
template <int dim>
__device__ inline void place_scales(const uint16_t* keys, const uint16_t* values, float of_scores, int left, int me, Scales<dim>& to) {
  if (me >= Sizes<dim>::kKeys) return;
  const bool there = me < left;
  const ValueScale v = value_scale(there ? scale_of(values[me]) : 1.0f);
  to.key[me] = there ? scale_of(keys[me]) * of_scores : 0.0f, to.log2[me] = v.log2;
  to.inverse[me] = isnan(v.inverse) ? 1.0f : v.inverse;  // a row of NaNs reaches those who see it by its exponent alone
}

// A tile of keys or values; zeros from position `left` of it on, since what lies there must not matter. A bringer has one piece of
// every kPass-th row. To a stage, or codes to the bringer's own place.
template <class T, int dim>
__device__ inline void fetch(const void* cache, const Places& places, int left, int me, uint8_t* to) {
  using S = Share<T, dim>;
  constexpr int kRowBytes = dim * int(sizeof(T));
  const int row = me / S::kLanes, c = me % S::kLanes;
  if (c >= S::kPieces) return;
  const uint8_t* const base = static_cast<const uint8_t*>(cache) + 16 * c;
  const uint32_t at = shared_address(to);
#pragma unroll
  for (int i = 0; i < S::kPasses; ++i) {
    const int r = i * S::kPass + row;
    const int group = S::kPass >= 16 ? i * (S::kPass / 16) + row / 16 : i * S::kPass / 16, in_group = S::kPass >= 16 ? row % 16 : i * S::kPass % 16 + row;
    const uint8_t* from = base + size_t(places.row[group]) * 16 + in_group * kRowBytes;
    const uint32_t there = at + (kIsCode<T> ? uint32_t(i * kBringers + me) * 16 : piece_at(r, c, Sizes<dim>::kKeyPanel));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(there), "l"(from), "r"(r < left ? 16 : 0) : "memory");
  }
}
// A bringer's codes to a stage, as f16.
template <class T, int dim>
__device__ inline void unpack(const uint8_t* codes, int me, uint8_t* to) {
  using S = Share<T, dim>;
  const int row = me / S::kLanes, c = me % S::kLanes;
  if (c >= S::kPieces) return;
#pragma unroll 4
  for (int i = 0; i < S::kPasses; ++i) {
    const uint4 v = *reinterpret_cast<const uint4*>(codes + (i * kBringers + me) * 16);
    const int r = row + i * S::kPass, odd = c / 4 % 2;  // the second piece first where the row's other half has the same banks
    *reinterpret_cast<uint4*>(to + piece_at(r, 2 * c + odd, Sizes<dim>::kKeyPanel)) = eight_halves<T>(odd ? make_uint2(v.z, v.w) : make_uint2(v.x, v.y));
    *reinterpret_cast<uint4*>(to + piece_at(r, 2 * c + 1 - odd, Sizes<dim>::kKeyPanel)) = eight_halves<T>(odd ? make_uint2(v.x, v.y) : make_uint2(v.z, v.w));
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
    const int lane = threadIdx.x % 4 * 2;
    if (softcap > 0) {  // apart: a branch for each score would cost more than the products
#pragma unroll
      for (int i = 0; i < Z::kKeys / 2; ++i) scores[i] = softcap * kLog2E * tanhf(scores[i] * s.key[i / 4 * 8 + lane + i % 2] / softcap) + s.log2[i / 4 * 8 + lane + i % 2];
      return;
    }
#pragma unroll
    for (int i = 0; i < Z::kKeys / 2; i += 4) {
      const float2 key = *reinterpret_cast<const float2*>(s.key + i * 2 + lane), plus = *reinterpret_cast<const float2*>(s.log2 + i * 2 + lane);
      scores[i] = fmaf(scores[i], key.x, plus.x), scores[i + 1] = fmaf(scores[i + 1], key.y, plus.y);
      scores[i + 2] = fmaf(scores[i + 2], key.x, plus.x), scores[i + 3] = fmaf(scores[i + 3], key.y, plus.y);
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
    for (int i = 0; i < Z::kKeys / 2; i += 4) {
#pragma unroll
      for (int k = 0; k < 4; ++k) scores[i + k] = exp2_fast(coded ? scores[i + k] - base[k / 2] : fmaf(scores[i + k], scale, -base[k / 2]));
      if constexpr (coded) {
        const float2 by = *reinterpret_cast<const float2*>(inverse + i * 2 + threadIdx.x % 4 * 2);
        total[0] = fmaf(scores[i], by.x, fmaf(scores[i + 1], by.y, total[0]));
        total[1] = fmaf(scores[i + 2], by.x, fmaf(scores[i + 3], by.y, total[1]));
      } else {
#pragma unroll
        for (int k = 0; k < 4; ++k) total[k / 2] += scores[i + k];
      }
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

// What all of a block know.
struct Task {
  const int32_t* blocks;
  int head, token, row, rows, start, lowest, begin, end, tiles;
};
// Of keys' stages and of values': what a bringer says is there, and workers are done with.
struct Barriers {
  uint64_t keys_here[2], values_here[2], keys_done[2], values_done[2];
};

template <class T, int dim>
__device__ inline void bring(const AttentionArgs& a, const Task& t, const Shared<dim>& shared, Barriers& b, Scales<kIsCode<T> ? dim : 64>* scales) {
  using Z = Sizes<dim>;
  __shared__ Places places[4];
  const int me = int(threadIdx.x) - kWorkers;
  const auto left = [&](int n) { return t.end - t.begin - n * Z::kKeys; };
  const auto find = [&](int n) { if (n < t.tiles) find_places<T, dim>(a, t.blocks, t.head, t.begin + n * Z::kKeys, t.end, me, places[n % 4]); };
  const auto meet_bringers = [] { asm volatile("bar.sync 2, %0;" ::"n"(kBringers) : "memory"); };
  // A stage is free again once it was used n / 2 times.
  const auto wait_done = [&](uint64_t* done, int n) { if (n >= 2) barrier_wait(done + n % 2, (n / 2 - 1) % 2); };
  find(0), find(1), find(2);
  meet_bringers();
  if constexpr (kIsCode<T>) {
    // Codes of keys and values in turn: number 2 n is of tile n's keys, 2 n + 1 of its values. All places but one are on their way while
    // that one is unpacked; scales come with both.
    constexpr int kAway = Z::kCodeTiles - 1;
    __shared__ __align__(16) uint16_t raw_scales[4][2][Z::kKeys];
    const float of_scores = a.softcap > 0 ? a.scale : a.scale * kLog2E;
    const auto fetch_codes = [&](int number) {
      const int n = number / 2, which = number % 2;
      if (n < t.tiles) {
        const void* cache = which ? a.cache.values : a.cache.keys;
        fetch<T, dim>(cache, places[n % 4], left(n), me, shared.codes(number % Z::kCodeTiles));
        // A key's tile is unpacked with the scales of its values, so both come with it.
        if (!which) fetch_scales<dim>(a.cache.keys, places[n % 4], me, raw_scales[n % 4][0]), fetch_scales<dim>(a.cache.values, places[n % 4], me, raw_scales[n % 4][1]);
      }
      fetch_commit();
    };
    for (int i = 0; i < kAway; ++i) fetch_codes(i);
    for (int n = 0; n < t.tiles; ++n) {
      fetch_codes(2 * n + kAway);
      fetch_wait<kAway>();
      meet_bringers();  // scales were brought by others; places of n + 2 are known
      wait_done(b.keys_done, n);
      unpack<T, dim>(shared.codes(2 * n % Z::kCodeTiles), me, shared.keys(n % 2));
      place_scales<dim>(raw_scales[n % 4][0], raw_scales[n % 4][1], of_scores, left(n), me, scales[n % 2]);
      publish_shared();
      barrier_arrive(b.keys_here + n % 2);
      find(n + 3);
      fetch_codes(2 * n + 1 + kAway);
      fetch_wait<kAway>();
      wait_done(b.values_done, n);
      unpack<T, dim>(shared.codes((2 * n + 1) % Z::kCodeTiles), me, shared.values(n % 2));
      publish_shared();
      barrier_arrive(b.values_here + n % 2);
    }
  } else {
    // Keys of n set out, what the step before sent is here by now, then values of n - 1, whose stage is free last.
    for (int n = 0; n <= t.tiles + 1; ++n) {
      find(n + 2);
      if (n < t.tiles) {
        wait_done(b.keys_done, n);
        fetch<T, dim>(a.cache.keys, places[n % 4], left(n), me, shared.keys(n % 2));
      }
      fetch_commit();
      fetch_wait<1>();
      publish_shared();
      if (n > 0 && n - 1 < t.tiles) barrier_arrive(b.keys_here + (n - 1) % 2);
      if (n > 1) barrier_arrive(b.values_here + (n - 2) % 2);
      if (n > 0 && n <= t.tiles) {
        wait_done(b.values_done, n - 1);
        fetch<T, dim>(a.cache.values, places[(n - 1) % 4], left(n - 1), me, shared.values((n - 1) % 2));
      }
      fetch_commit();
      meet_bringers();
    }
  }
}

template <class T, int dim>
__device__ inline void work(const AttentionArgs& a, const Task& t, const Shared<dim>& shared, Barriers& b, const Scales<kIsCode<T> ? dim : 64>* scales) {
  using Z = Sizes<dim>;
  constexpr bool kCoded = kIsCode<T>;
  const int group = a.q_heads / a.kv_heads, in_group = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4;
  const int row[2] = {t.row + in_group, t.row + in_group + 8};
  const float scale = kCoded ? 1 : a.softcap > 0 ? kLog2E : a.scale * kLog2E;
  int last[2], first[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    last[i] = t.start + row[i] / group;
    first[i] = a.window > 0 ? last[i] - a.window + 1 : 0;
  }
  place_queries<T, dim>(a, t.token, t.head, t.row, t.rows, shared.queries());
  publish_shared();
  meet<kWorkers>();
  const uint32_t queries = shared_address(shared.queries()) + threadIdx.x / 128 * 64 * 128;
  Tile<HalfOf<T>, dim> tile;
  tile.begin();
  const auto here = [&](uint64_t* of, int n) { barrier_wait(of + n % 2, n / 2 % 2); };
  const auto done = [&](uint64_t* of, int n) { if (threadIdx.x % 32 == 0) barrier_arrive(of + n % 2); };
  // Of tile n, whose scores are here; the tile's keys are done with, and the scales behind them.
  const auto weigh = [&](int n) {
    const int from = t.begin + n * Z::kKeys;
    if constexpr (kCoded) tile.take_scales(scales[n % 2], a.softcap);
    else if (a.softcap > 0) tile.cap(a.scale, a.softcap);
    if constexpr (!kCoded) done(b.keys_done, n);
    if (from + Z::kKeys - 1 > t.lowest || (a.window > 0 && from < t.end - a.window)) tile.hide(from, last, first);
    tile.template weigh<kCoded>(scale, kCoded ? scales[n % 2].inverse : nullptr);
    if constexpr (kCoded) {
      __syncwarp();
      done(b.keys_done, n);
    }
  };
  here(b.keys_here, 0);
  tile.score(queries, shared_address(shared.keys(0)));
  products_wait<0>();
  weigh(0);
  tile.settle();
  for (int n = 0; n + 1 < t.tiles; ++n) {
    here(b.keys_here, n + 1);
    tile.score(queries, shared_address(shared.keys((n + 1) % 2)));
    here(b.values_here, n);
    tile.add_values(shared_address(shared.values(n % 2)));
    products_wait<1>();
    weigh(n + 1);
    products_wait<0>();
    done(b.values_done, n);
    tile.settle();
  }
  here(b.values_here, t.tiles - 1);
  tile.add_values(shared_address(shared.values((t.tiles - 1) % 2)));
  products_wait<0>();
  tile.store(a, t.token, t.head, row, t.rows);
}

template <class T, int dim>
__global__ void __launch_bounds__(kThreads, 1) many_attention_kernel(const __grid_constant__ AttentionArgs a) {
  constexpr bool kCoded = kIsCode<T>;
  extern __shared__ uint8_t raw[];
  __shared__ Barriers barriers;
  __shared__ Scales<kCoded ? dim : 64> scales[kCoded ? 2 : 1];
  let_next_begin();
  Work work_here;
  if (!find_work(a, work_here)) {  // as in attention_few.cu, one block waits for all that have nothing to do
    if (blockIdx.x == 0 && blockIdx.y == 0) wait_for_previous();
    return;
  }
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) {
      barrier_init(barriers.keys_here + i, kBringers), barrier_init(barriers.values_here + i, kBringers);
      barrier_init(barriers.keys_done + i, kWorkers / 32), barrier_init(barriers.values_done + i, kWorkers / 32);
    }
  }
  __syncthreads();
  wait_for_previous();
  const Shared<dim> shared(raw);
  const int group = a.q_heads / a.kv_heads;
  Task t;
  t.blocks = a.batch.block_ids + a.batch.block_begin[work_here.sequence];
  t.head = blockIdx.y, t.row = work_here.row, t.token = a.batch.query_begin[work_here.sequence];
  const int tokens = a.batch.query_begin[work_here.sequence + 1] - t.token;
  t.rows = tokens * group;
  t.start = a.batch.kv_len[work_here.sequence] - tokens;  // position of the sequence's first token in the step
  t.lowest = t.start + t.row / group, t.end = t.start + (min(t.row + kRows, t.rows) - 1) / group + 1;
  t.begin = a.window > 0 ? max(0, t.lowest - a.window + 1) / Sizes<dim>::kKeys * Sizes<dim>::kKeys : 0;
  t.tiles = (t.end - t.begin + Sizes<dim>::kKeys - 1) / Sizes<dim>::kKeys;
  if (threadIdx.x >= kWorkers) {
    registers_give<kBringerRegisters>();
    bring<T, dim>(a, t, shared, barriers, scales);
  } else {
    registers_take<kWorkerRegisters>();
    work<T, dim>(a, t, shared, barriers, scales);
  }
}

template <class T, int dim>
void launch_many(CudaContext* c, const AttentionArgs& a) {
  const auto kernel = many_attention_kernel<T, dim>;
  constexpr int kShared = Sizes<dim>::kShared + (kIsCode<T> ? Sizes<dim>::kCodeTiles * Sizes<dim>::kCodeBytes : 0);
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
