#include "kernels/cuda/attention_open.h"

#include <algorithm>

#include "kernels/cuda/cache.cuh"
#include "kernels/cuda/launch.cuh"

namespace sluice::kernels::cuda {
namespace {

constexpr int kOpeners = 256;              // threads of a block
constexpr size_t kOpenedBytes = 32 << 10;  // a token

[[maybe_unused]] __device__ inline float scale_of(const uint8_t* scales, int row) {
  return __uint_as_float(uint32_t(__ldcg(reinterpret_cast<const uint16_t*>(scales) + row)) << 16);
}

// By a warp: the rows of a group; a lane has 16 codes of a row at a time.
template <class T, int dim, bool mixed>
__device__ inline void open_rows(const uint8_t* codes, const uint8_t* scales, __half* to) {
  constexpr int kPieces = dim / 16, kRounds = (dim + 31) / 32, kBlock = mixed_block(dim);
  static_assert(!mixed || kBlock <= 16 || dim % 32 == 0);  // lanes that share a row's blocks are all here
  const int lane = threadIdx.x % 32;
  uint4 words[kRounds];
  float scale[kRounds];
#pragma unroll
  for (int k = 0; k < kRounds; ++k) {
    const int i = k * 32 + lane;
    if (i < dim) words[k] = __ldcg(reinterpret_cast<const uint4*>(codes) + i), scale[k] = scale_of(scales, i / kPieces);
  }
#pragma unroll
  for (int k = 0; k < kRounds; ++k) {
    const int i = k * 32 + lane;
    if (i >= dim) continue;
    const uint32_t word[4] = {words[k].x, words[k].y, words[k].z, words[k].w};
    float x[16];
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      uint32_t pairs[2];
      four_halves<T>(word[w], pairs[0], pairs[1]);
#pragma unroll
      for (int p = 0; p < 2; ++p) {
        const float2 two = __half22float2(reinterpret_cast<const __half2&>(pairs[p]));
        x[4 * w + 2 * p] = two.x, x[4 * w + 2 * p + 1] = two.y;
      }
    }
    if constexpr (mixed) {
      mix_held(x, kBlock);
#pragma unroll
      for (int step = 1; 16 * step < kBlock; step *= 2)
#pragma unroll
        for (float& v : x) v = mix_lanes(v, step);
      scale[k] *= mix_factor(kBlock);
    }
    uint32_t pairs[8];
#pragma unroll
    for (int p = 0; p < 8; ++p) pairs[p] = pair_of<__half>(x[2 * p] * scale[k], x[2 * p + 1] * scale[k]);
    auto* out = reinterpret_cast<uint4*>(to + 16 * i);
    out[0] = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]), out[1] = make_uint4(pairs[4], pairs[5], pairs[6], pairs[7]);
  }
}

// A warp has the keys of a group of positions of a head, or the values.
template <class T, int dim>
__global__ void __launch_bounds__(kOpeners) open_kernel(const __grid_constant__ AttentionArgs a, Opened opened) {
  if constexpr (kHopper) {
    let_next_begin();
    const int warp = int(blockIdx.x * (kOpeners / 32) + threadIdx.x / 32), at = warp / 2, number = opened.round * opened.bucket + at;
    Found f;
    bool mine = at < 2 * opened.bucket && find<true>(a, number / a.kv_heads, f);
    size_t codes = 0, scales = 0;
    if (mine) {
      const int groups = groups_of(a, f.sequence), in = number - f.groups * a.kv_heads, head = in / groups, group = in % groups;
      mine = (number - group) / opened.bucket == opened.round;
      const int position = group * kGroup, slots = a.batch.block_tokens, block = a.batch.block_ids[a.batch.block_begin[f.sequence] + position / slots];
      const size_t stride = warp % 2 ? a.cache.value_stride : a.cache.key_stride;
      const RowPlace place = row_place<T>(a.batch, stride, block, head, a.kv_heads, position % slots, dim);
      codes = place.row, scales = place.scale;
    }
    wait_for_previous();
    if (!mine) return;
    const auto* from = static_cast<const uint8_t*>(warp % 2 ? a.cache.values : a.cache.keys);
    auto* to = static_cast<__half*>(warp % 2 ? opened.values : opened.keys) + size_t(at) * kGroup * dim;
    if (warp % 2 == 0) open_rows<T, dim, kIsMixed<T>>(from + codes, from + scales, to);
    else open_rows<T, dim, false>(from + codes, from + scales, to);
  }
}

template <class T, int dim>
void launch_open(CudaContext* c, const AttentionArgs& a, const Opened& opened, const Prompts& prompts) {
  const size_t all = prompts.groups * size_t(a.kv_heads) - size_t(opened.round) * size_t(opened.bucket);
  const size_t warps = 2 * std::min(all, 2 * size_t(opened.bucket)), a_block = kOpeners / 32;
  note(c, launch_early(c, dim3(unsigned((warps + a_block - 1) / a_block)), kOpeners, 0, open_kernel<T, dim>, a, opened));
}

template <class T>
void choose_dim(CudaContext* c, const AttentionArgs& a, const Opened& opened, const Prompts& prompts) {
  switch (a.head_dim) {
    case 64: return launch_open<T, 64>(c, a, opened, prompts);
    case 80: return launch_open<T, 80>(c, a, opened, prompts);
    case 96: return launch_open<T, 96>(c, a, opened, prompts);
    case 128: return launch_open<T, 128>(c, a, opened, prompts);
    case 256: return launch_open<T, 256>(c, a, opened, prompts);
  }
}

// Of keys and values, for a group of positions of a head.
size_t group_bytes(int head_dim) { return size_t(kGroup) * size_t(head_dim) * 2 * sizeof(__half); }

}  // namespace

Prompts prompts_of(const AttentionArgs& a) noexcept {
  const int heads = a.q_heads / a.kv_heads, most_few = std::max(kFewRows, heads);
  const size_t rows = size_t(a.batch.num_tokens) * size_t(heads);
  Prompts p;
  if (!a.batch.host_query_begin || !a.batch.host_kv_len) {
    p.tiles = rows / kRows + std::min(size_t(a.batch.num_sequences), rows / kFewRows + 1);
    p.few_rows = std::min(most_few, int(rows)), p.most_rows = int(rows);
    return p;
  }
  Listed& l = p.listed;
  int many = 0;
  for (int s = 0; s < a.batch.num_sequences; ++s) {
    const int here = (a.batch.host_query_begin[s + 1] - a.batch.host_query_begin[s]) * heads;
    p.most_rows = std::max(p.most_rows, here);
    if (here <= most_few) {
      p.few_rows = std::max(p.few_rows, here);
      continue;
    }
    if (many < Listed::kMost) l.sequence[many] = s, l.tiles[many] = int(p.tiles);
    ++many;
    const size_t groups = size_t(a.batch.host_kv_len[s] + kGroup - 1) / kGroup;
    p.tiles += size_t((here + kRows - 1) / kRows), p.groups += groups, p.longest = std::max(p.longest, groups);
  }
  l.count = many <= Listed::kMost ? many : 0;
  return p;
}

// Twice what one head of the longest context takes, so that any sequence has room, and eight positions of eight heads of 128 for each token of the
// largest step: a step with more takes a round of kernels for each half of this.
size_t opened_bytes(const ContextOptions& o) noexcept {
  if (!capability_of(o.device).hopper || o.deterministic || o.head_dim <= 0 || is_float(o.cache_type.keys)) return 0;
  const size_t longest = (size_t(std::max(1, o.max_context)) + kGroup - 1) / kGroup;
  return std::max(2 * longest * group_bytes(o.head_dim), size_t(std::max(1, o.max_tokens)) * kOpenedBytes);
}

Opened room_for_opened(const CudaContext* c, const AttentionArgs& a, const Prompts& prompts) noexcept {
  const size_t groups = c->opened_bytes / group_bytes(a.head_dim) / 2 * 2;
  Opened o;
  if (prompts.groups == 0 || prompts.longest > groups / 2) return o;
  o.keys = c->opened, o.values = static_cast<__half*>(c->opened) + groups * kGroup * size_t(a.head_dim);
  o.bucket = int(groups / 2);
  return o;
}

bool can_open(const CudaContext* c, const AttentionArgs& a, const Prompts& prompts) noexcept { return room_for_opened(c, a, prompts).bucket > 0; }

void open_prompts(CudaContext* c, const AttentionArgs& a, const Opened& opened, const Prompts& prompts) noexcept {
  if (a.cache.type.keys == CacheElement::kFp8) return choose_dim<E4m3>(c, a, opened, prompts);
  choose_dim<Int8>(c, a, opened, prompts);
}

}  // namespace sluice::kernels::cuda
