// Attention of sequences with many tokens in the step (prompts): tensor cores by warpgroup. A block takes 128 rows of one
// sequence and KV head - tokens times the query heads that share it - two warpgroups of 64, and walks the positions in tiles:
// scores of a tile, online softmax in registers, and the weights, still in registers, times the values. A third warpgroup brings keys
// and values to two stages of shared memory each and, where the cache holds codes, makes them f16 there; barriers in shared memory say what is
// there and what is done with, so that one warpgroup's softmax runs beside the other's products. The order is FlashAttention's (Dao,
// arXiv 2307.08691; Shah and others, arXiv 2407.08608); blocks that have most to do are first in the grid.
#include <algorithm>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_bring.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/prologue.cuh"

namespace sluice::kernels::cuda {
namespace {

__device__ inline float exp2_fast(float v) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(v));
  return y;
}
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
      for (int i = 0; i < Z::kKeys / 2; ++i) {
        const int at = i / 4 * 8 + lane + i % 2;
        scores[i] = softcap * kLog2E * tanhf(scores[i] * s.key[at] / softcap) + s.log2[at];
      }
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
