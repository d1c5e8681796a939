// What a block of attention_many.cu keeps in shared memory, and how its third warpgroup (the bringers) fills it: tiles of keys and
// values to two stages of each, swizzled as wgmma.cuh wants them; codes of a quantised cache first to places of each bringer's own.
#pragma once
#include "kernels/cuda/attention.h"
#include "kernels/cuda/cache.cuh"
#include "kernels/cuda/wgmma.cuh"

namespace sluice::kernels::cuda {

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

// Where 16-byte piece c of row r lies among panels of `panel` bytes.
__device__ inline uint32_t piece_at(int r, int c, int panel) { return uint32_t(c / 8 * panel + r * 128 + ((c ^ r) & 7) * 16); }

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
        if (!which) {
          fetch_scales<dim>(a.cache.keys, places[n % 4], me, raw_scales[n % 4][0]);
          fetch_scales<dim>(a.cache.values, places[n % 4], me, raw_scales[n % 4][1]);
        }
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

}  // namespace sluice::kernels::cuda
