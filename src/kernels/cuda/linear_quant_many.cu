// Products of tiled weights (tiled.h) with some dozens of tokens and more (many_tiles.cuh). A step is a unit of 128 columns. In registers quants become f16 with
// scale and minimum applied - one rounding more than linear_quant.cu, paid back over the tokens - and are the left factor of the tensor
// cores' products, a warp a tile of 16 rows of each band.
#include "kernels/cuda/many_tiles.cuh"
#include "kernels/cuda/tiled.cuh"

namespace sluice::kernels::cuda {
namespace {

__device__ inline uint32_t both(float v) { return pair_in_range<__half>(v, v); }
// The low or high half of a word twice.
__device__ inline uint32_t both_of(uint32_t word, int half) { return __byte_perm(word, 0, half ? 0x3232 : 0x1010); }

// A lane's pieces and scales of a unit in shared memory.
template <WeightType type>
struct UnitInPlace {
  static constexpr int kPieces = unit_pieces(type), kScales = unit_scales(type) / 4;
  uint32_t pieces[kPieces][4], scales[kScales];
  __device__ void read(const uint8_t* unit) {
    const int lane = threadIdx.x % 32, g = lane / 4;
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      const uint4 v = *reinterpret_cast<const uint4*>(unit + p * 512 + lane * 16);
      pieces[p][0] = v.x, pieces[p][1] = v.y, pieces[p][2] = v.z, pieces[p][3] = v.w;
    }
    const uint8_t* at = unit + kPieces * 512;
    const uint4 v = *reinterpret_cast<const uint4*>(at + scale_at<type>(g, 0));
    scales[0] = v.x, scales[1] = v.y, scales[2] = v.z, scales[3] = v.w;
#pragma unroll
    for (int i = 4; i < kScales; ++i) scales[i] = word_of(at + scale_at<type>(g, i));
  }
  // The left factors of block b's halves, scaled.
  __device__ void factors(int b, uint32_t (&a)[2][4]) const {
    uint32_t scale[2][2], min[2] = {};  // [half][row]; [row]
    if constexpr (type == WeightType::kQ4_K || type == WeightType::kQ6_K) {
      const BlockScales s = scales_of<type>([&](int i) { return scales[i]; }, b);
#pragma unroll
      for (int r = 0; r < 2; ++r) scale[0][r] = both(s.scale[0][r]), scale[1][r] = both(s.scale[1][r]), min[r] = both(-s.min[r]);
    } else {  // halves as they are
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        scale[0][r] = scale[1][r] = both_of(scales[b], r);
        if constexpr (type == WeightType::kQ4_1) min[r] = both_of(scales[4 + b], r);
      }
    }
#pragma unroll
    for (int m = 0; m < 2; ++m) {
      left_of<type>([&](int p, int i) { return pieces[p][i]; }, b, m, a[m]);
#pragma unroll
      for (int k = 0; k < 4; ++k) a[m][k] = kHasMin<type> ? half2_fma(a[m][k], scale[m][k % 2], min[k % 2]) : half2_mul(a[m][k], scale[m][k % 2]);
    }
  }
};

template <WeightType type>
struct StreamedTiles {
  static constexpr int kPanels = kUnitCols / 64, kBandTiles = kBandRows / kUnitRows;
  __host__ __device__ static constexpr int band_bytes() { return kBandTiles * unit_bytes(type); }

  static __device__ void fetch(const ManyProduct& a, int row, int step, uint8_t* to, uint64_t* barrier) {
    const int lane = threadIdx.x % 32, band = lane / kBandTiles;
    if (band >= kBands) return;
    const bool is_gated = a.gate != Gate::kNone;
    const Output& o = a.out[is_gated ? band : 0];
    // The last tile in place of those past the end.
    const int tile = min(row / kUnitRows + (is_gated ? lane % kBandTiles : lane), (o.rows - 1) / kUnitRows);
    copy_stretch(shared_address(to) + lane * unit_bytes(type), o.weight + size_t(tile) * tile_bytes(type, a.cols) + size_t(step) * unit_bytes(type),
                 unit_bytes(type), barrier);
  }

  template <int tokens>
  static __device__ void multiply(float (&sums)[kBands][tokens / 2], const uint8_t* weights, uint32_t inputs, bool add) {
    const uint8_t* mine = weights + threadIdx.x / 32 * unit_bytes(type);
    constexpr int kTogether = tokens <= 64 ? 2 : 1;  // blocks that are multiplied while the next are made into factors: registers allow no more
    UnitInPlace<type> units[kBands];
#pragma unroll
    for (int i = 0; i < kBands; ++i) units[i].read(mine + i * band_bytes());
    uint32_t factors[2][kTogether][kBands][2][4];
#pragma unroll
    for (int n = 0; n < 4 / kTogether; ++n) {
#pragma unroll
      for (int b = 0; b < kTogether; ++b)
#pragma unroll
        for (int i = 0; i < kBands; ++i) units[i].factors(n * kTogether + b, factors[n % 2][b][i]);
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

}  // namespace

void multiply_quant_many(CudaContext* c, WeightType type, const Product& p, const LinearArgs& a) noexcept {
  const Halves in = half_inputs(c, type, a, p.cols);
  with_tiled(type, [&]<WeightType t>() {
    using F = StreamedTiles<t>;
    const bool is_gated = p.gate != Gate::kNone;
    for (int i = 0; i < (is_gated ? 1 : p.outputs); ++i) {
      ManyProduct m{{p.out[i], p.out[is_gated ? 1 : i]}, p.gate, p.tokens, p.cols};
      if (p.tokens <= 32) launch_many<F, 32>(c, m, in.x, in.stride);
      else if (p.tokens <= 64) launch_many<F, 64>(c, m, in.x, in.stride);
      else launch_many<F, 128>(c, m, in.x, in.stride);
    }
  });
}

}  // namespace sluice::kernels::cuda
