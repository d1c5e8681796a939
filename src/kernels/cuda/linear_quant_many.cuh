// Products of tiled weights (tiled.h) with some dozens of tokens and more (many_tiles.cuh). A step is a unit of 128 columns. In registers quants become f16 with
// scale and minimum applied - one rounding more than linear_quant.cuh, paid back over the tokens - and are the left factor of the tensor
// cores' products, a warp a tile of 16 rows of each band.
#pragma once
#include "kernels/cuda/many_tiles.cuh"
#include "kernels/cuda/tiled.cuh"

namespace sluice::kernels::cuda {

__device__ inline uint32_t both(float v) { return pair_in_range<__half>(v, v); }
// The low or high half of a word twice.
__device__ inline uint32_t both_of(uint32_t word, int half) { return __byte_perm(word, 0, half ? 0x3232 : 0x1010); }

// The left factors of block b's halves, scaled.
template <class T>
__device__ inline void scaled_factors(const Lane<T>& lane, int b, uint32_t (&a)[2][4]) {
#pragma unroll
  for (int m = 0; m < 2; ++m) {
    const int half = 2 * b + m;
    uint32_t scale[2], offset[2] = {};  // of each row
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if constexpr (T::kFileHalves) {
        scale[r] = both_of(lane.scale(T::scale_word(half)), r);
        if constexpr (T::kHasMin) offset[r] = both_of(lane.scale(T::min_word(half)), r);
      } else {
        scale[r] = both(T::scale(lane, half, r));
        if constexpr (T::kHasMin) offset[r] = both(-T::min(lane, half, r));
      }
    }
    T::left(lane, half, a[m]);
#pragma unroll
    for (int p = 0; p < 4; ++p) a[m][p] = T::kHasMin ? half2_fma(a[m][p], scale[p % 2], offset[p % 2]) : half2_mul(a[m][p], scale[p % 2]);
  }
}

template <class T>
struct StreamedTiles {
  static constexpr bool kScaled = false;
  static constexpr int kPanels = kUnitCols / 64, kBandTiles = kBandRows / kUnitRows;
  __host__ __device__ static constexpr int band_bytes() { return kBandTiles * kUnitBytes<T>; }

  static __device__ void fetch(const ManyProduct& a, int row, int step, uint8_t* to, uint64_t* barrier) {
    const int lane = threadIdx.x % 32, band = lane / kBandTiles;
    if (band >= kBands) return;
    const bool is_gated = a.gate != Gate::kNone;
    const Output& o = a.out[is_gated ? band : 0];
    // The last tile in place of those past the end.
    const int tile = min(row / kUnitRows + (is_gated ? lane % kBandTiles : lane), (o.rows - 1) / kUnitRows);
    copy_stretch(shared_address(to) + lane * kUnitBytes<T>, o.weight + size_t(tile) * tile_bytes<T>(a.cols) + size_t(step) * kUnitBytes<T>,
                 kUnitBytes<T>, barrier);
  }

  template <int tokens>
  static __device__ void multiply(float (&sums)[kBands][tokens / 2], const uint8_t* weights, uint32_t inputs, bool add) {
    const uint8_t* mine = weights + threadIdx.x / 32 * kUnitBytes<T>;
    constexpr int kTogether = tokens <= 64 ? 2 : 1;  // blocks that are multiplied while the next are made into factors: registers allow no more
    Lane<T> units[kBands];
#pragma unroll
    for (int i = 0; i < kBands; ++i) units[i].read(mine + i * band_bytes());
    uint32_t factors[2][kTogether][kBands][2][4];
#pragma unroll
    for (int n = 0; n < 4 / kTogether; ++n) {
#pragma unroll
      for (int b = 0; b < kTogether; ++b)
#pragma unroll
        for (int i = 0; i < kBands; ++i) scaled_factors(units[i], n * kTogether + b, factors[n % 2][b][i]);
      products_begin();
#pragma unroll
      for (int b = 0; b < kTogether; ++b)
#pragma unroll
        for (int m = 0; m < 2; ++m)
#pragma unroll
          for (int i = 0; i < kBands; ++i) {
            const int at = (n * kTogether + b) * 2 + m;  // 16 columns each
            multiply_held<__half, tokens>(sums[i], factors[n % 2][b][i][m], matrix_at(inputs + at / 4 * (tokens * 128) + at % 4 * 32, 0), add || at);
          }
      products_commit();
      if (n + 1 < 4 / kTogether) products_wait<1>();
      else products_wait<0>();
    }
  }
};

template <class T>
void multiply_quant_many(CudaContext* c, const Product& p, const LinearArgs& a) noexcept {
  using F = StreamedTiles<T>;
  const Halves in = half_inputs(c, T::kType, a, p.cols);
  const bool is_gated = p.gate != Gate::kNone;
  for (int i = 0; i < (is_gated ? 1 : p.outputs); ++i) {
    ManyProduct m{{p.out[i], p.out[is_gated ? 1 : i]}, p.gate, p.tokens, p.cols};
    if (p.tokens <= 32) launch_many<F, 32>(c, m, in.x, in.stride);
    else if (p.tokens <= 64) launch_many<F, 64>(c, m, in.x, in.stride);
    else launch_many<F, 128>(c, m, in.x, in.stride);
  }
}

}  // namespace sluice::kernels::cuda
