// A worker's part of attention of prompts (attention_many.cu): 64 rows of a warpgroup against tiles of positions, scores and sums of values
// in registers, softmax as it goes.
#pragma once
#include "kernels/cuda/attention_bring.cuh"

namespace sluice::kernels::cuda {

constexpr float kLog2E = 1.4426950408889634f;

// A thread's part: rows lane / 4 and 8 more of its warp's 16; number i of an array is of row i / 2 % 2 and column
// i / 4 * 8 + 2 (lane % 4) + i % 2.
template <class H, int dim>
struct Tile {
  using Z = Sizes<dim>;
  static constexpr int kMain = dim >= 128 ? 128 : 64, kRest = dim % kMain;
  // Weights are relative to the highest score that was seen, or to one that is less by this many powers of two at most: an f16 holds
  // the weights, and what was summed before seldom has to shrink.
  static constexpr float kSlack = 8;
  float scores[Z::kKeys / 2], out[dim / kMain][kMain / 2], rest[kRest ? kRest / 2 : 1];
  uint32_t weights[Z::kKeys / 16][4];
  float highest[2], total[2], base[2], shrink[2];

  __device__ void begin() { highest[0] = highest[1] = -INFINITY, total[0] = total[1] = 0; }
  // Queries of as many elements as registers hold; others are read where they lie.
  static constexpr bool kHeld = dim <= 128;
  uint32_t held[kHeld ? dim / 16 : 1][4], queries;
  __device__ void take_queries(const uint8_t* from, int first_row) {
    queries = shared_address(from) + first_row * 128;
    if constexpr (kHeld) {
      const int lane = threadIdx.x % 32, r = threadIdx.x / 32 % 4 * 16 + lane % 16;
#pragma unroll
      for (int k = 0; k < dim / 16; ++k) load_matrices(held[k], queries + piece_at(r, 2 * k + lane / 16, Z::kQueryPanel));
    }
  }
  // Both of these leave their products under way, a group each.
  __device__ void score(uint32_t keys) {
    products_begin();
#pragma unroll
    for (int k = 0; k < dim / 16; ++k) {
      const uint64_t factor = matrix_at(keys + k / 4 * Z::kPanel + k % 4 * 32, 0, Z::kEight);
      if constexpr (kHeld) multiply_held<H, Z::kKeys>(scores, held[k], factor, k != 0);
      else multiply<H, Z::kKeys>(scores, matrix_at(queries + k / 4 * Z::kQueryPanel + k % 4 * 32, 0), factor, k != 0);
    }
    products_commit();
  }
  // more: to what was summed before; it takes the place of that otherwise.
  __device__ void add_values(uint32_t values, bool more) {
    products_begin();
#pragma unroll
    for (int k = 0; k < Z::kKeys / 16; ++k) {
      const uint32_t from = values + k * 2 * Z::kEight;
#pragma unroll
      for (int n = 0; n < dim / kMain; ++n)
        add<H, kMain>(out[n], weights[k], matrix_at(from + n * (kMain / 64) * Z::kPanel, Z::kPanel, Z::kEight), more || k != 0);
      if constexpr (kRest != 0) add<H, kRest>(rest, weights[k], matrix_at(from + dim / 64 * Z::kPanel, Z::kPanel, Z::kEight), more || k != 0);
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
  // Rows that see one of these positions get NaNs.
  __device__ void spoil(const uint32_t* spoilt, int from, const int last[2], const int first[2]) {
    for (int word = 0; word < Z::kKeys / 32; ++word)
      for (uint32_t bits = spoilt[word]; bits; bits &= bits - 1) {
        const int at = from + word * 32 + __ffs(int(bits)) - 1;
#pragma unroll
        for (int row = 0; row < 2; ++row)
          if (at <= last[row] && at >= first[row]) total[row] = NAN;
      }
  }
  __device__ void cap(float scale, float softcap) {
#pragma unroll
    for (float& s : scores) s = softcap * tanhf(s * scale / softcap);
  }
  // What weights are relative to, with these scores; what was summed before has to shrink to match.
  __device__ void level(float scale) {
    float top[2][2] = {{-INFINITY, -INFINITY}, {-INFINITY, -INFINITY}};
#pragma unroll
    for (int i = 0; i < Z::kKeys / 2; ++i) top[i / 2 % 2][i % 2] = fmaxf(top[i / 2 % 2][i % 2], scores[i]);
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      float here = fmaxf(top[row][0], top[row][1]);
      here = fmaxf(here, __shfl_xor_sync(0xFFFFFFFFu, here, 1));
      here = fmaxf(here, __shfl_xor_sync(0xFFFFFFFFu, here, 2));
      const bool keep = (here - highest[row]) * scale <= kSlack;  // false where both are -infinity
      const float next = keep ? highest[row] : fmaxf(highest[row], here);
      base[row] = next == -INFINITY ? 0.0f : next * scale;  // a row that has seen nothing yet: all weights come out as 0
      shrink[row] = keep ? 1.0f : exp2_fast(highest[row] * scale - base[row]);
      highest[row] = next;
    }
  }
  // No products may be under way for this and the next.
  __device__ void shrink_sums() {
    if (!__any_sync(0xFFFFFFFFu, shrink[0] != 1 || shrink[1] != 1)) return;
    for (auto& o : out)
#pragma unroll
      for (int i = 0; i < kMain / 2; ++i) o[i] *= shrink[i / 2 % 2];
    if constexpr (kRest != 0) {
#pragma unroll
      for (int i = 0; i < kRest / 2; ++i) rest[i] *= shrink[i / 2 % 2];
    }
  }
  // Scores become weights, 2^(scale * score - base).
  __device__ void weigh(float scale) {
    float sum[2][2] = {};
#pragma unroll
    for (int k = 0; k < Z::kKeys / 16; ++k) {
#pragma unroll
      for (int i = 8 * k; i < 8 * k + 8; ++i) {
        scores[i] = exp2_fast(fmaf(scores[i], scale, -base[i / 2 % 2]));
        sum[i / 2 % 2][i % 2] += scores[i];
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) weights[k][i] = pair_in_range<H>(scores[8 * k + 2 * i], scores[8 * k + 2 * i + 1]);
    }
#pragma unroll
    for (int row = 0; row < 2; ++row) total[row] = fmaf(total[row], shrink[row], sum[row][0] + sum[row][1]);
  }
  // The four lanes of a row hold two columns of each eight. Halves are passed around, so that each lane stores eight neighbours.
  template <class O, int n>
  __device__ void store_columns(O* to, const float (&from)[n], int half, float share, bool there) {
    const int lane = threadIdx.x % 4;
    if constexpr (sizeof(O) == 4 || n % 16 != 0) {
#pragma unroll
      for (int c = 0; c < n / 4; ++c) {
        const float low = from[4 * c + 2 * half] * share, high = from[4 * c + 2 * half + 1] * share;
        if (!there) continue;
        if constexpr (sizeof(O) == 4) *reinterpret_cast<float2*>(to + 8 * c + 2 * lane) = {low, high};
        else *reinterpret_cast<uint32_t*>(to + 8 * c + 2 * lane) = pair_of<O>(low, high);
      }
    } else {
#pragma unroll
      for (int first = 0; first < n / 4; first += 4) {
        uint32_t w[4];
#pragma unroll
        for (int c = 0; c < 4; ++c) w[c] = pair_of<O>(from[4 * (first + c) + 2 * half] * share, from[4 * (first + c) + 2 * half + 1] * share);
#pragma unroll
        for (int step = 1; step < 4; step *= 2)
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            if (c & step) continue;
            const uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, lane & step ? w[c] : w[c + step], step);
            w[c] = lane & step ? other : w[c];
            w[c + step] = lane & step ? w[c + step] : other;
          }
        if (there) *reinterpret_cast<uint4*>(to + 8 * (first + lane)) = make_uint4(w[0], w[1], w[2], w[3]);
      }
    }
  }
  template <class O>
  __device__ void store_rows(const AttentionArgs& a, const Task& t, int in_task) {
    const int group = a.q_heads / a.kv_heads;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float sum = total[i];
      sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 1);
      sum += __shfl_xor_sync(0xFFFFFFFFu, sum, 2);
      const int row = t.row + in_task + 8 * i;
      const float share = __fdividef(1.0f, sum);
      O* const to = static_cast<O*>(a.out.data) + size_t(t.token + row / group) * a.out_stride + size_t(t.head * group + row % group) * dim;
#pragma unroll
      for (int n = 0; n < dim / kMain; ++n) store_columns(to + kMain * n, out[n], i, share, row < t.rows);
      if constexpr (kRest != 0) store_columns(to + dim / kMain * kMain, rest, i, share, row < t.rows);
    }
  }
  // in_task: the first of the thread's two rows.
  __device__ void store(const AttentionArgs& a, const Task& t, int in_task) {
    if (a.out.type == DType::kF32) store_rows<float>(a, t, in_task);
    else if (a.out.type == DType::kF16) store_rows<__half>(a, t, in_task);
    else store_rows<__nv_bfloat16>(a, t, in_task);
  }
};

}  // namespace sluice::kernels::cuda
