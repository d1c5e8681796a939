// Products of dozens of tokens by weights of f16, bf16 or e4m3 (many_tiles.cuh), at the memory's speed. A step is 128 bytes of each row; both factors are in
// shared memory as tensor maps bring them.
#include <type_traits>

#include "kernels/cuda/many_tiles.cuh"

namespace sluice::kernels::cuda {
namespace {

template <class E>
struct DenseTiles {
  static constexpr bool kScaled = std::is_same_v<E, __nv_fp8_e4m3>;
  static constexpr int kPanels = 1, kRowBytes = 128;
  __host__ __device__ static constexpr int band_bytes() { return kBandRows * kRowBytes; }

  static __device__ void fetch(const ManyProduct& a, int row, int step, uint8_t* to, uint64_t* barrier) {
    const int band = int(threadIdx.x) % 32;
    if (band >= kBands) return;
    const bool is_gated = a.gate != Gate::kNone;
    copy_tile(shared_address(to) + band * band_bytes(), &a.weights[is_gated ? band : 0], step * (kRowBytes / 2), row + (is_gated ? 0 : band * kBandRows), barrier);
  }

  template <int tokens>
  static __device__ void multiply(float (&sums)[kBands][tokens / 2], const uint8_t* weights, uint32_t inputs, bool add) {
    const uint32_t mine = shared_address(weights) + int(threadIdx.x) / 128 * (band_bytes() / 2);
    products_begin();
#pragma unroll
    for (int k = 0; k < kRowBytes / 32; ++k)
#pragma unroll
      for (int i = 0; i < kBands; ++i) cuda::multiply<E, tokens>(sums[i], matrix_at(mine + i * band_bytes() + 32 * k, 0), matrix_at(inputs + 32 * k, 0), add || k);
    products_commit();
    products_wait<0>();
#pragma unroll
    for (int i = 0; i < kBands; ++i) sums_are_there(sums[i]);
  }
};

// x: rows of E's bytes, `stride` apart, at multiples of 16. Maps are of pairs of bytes, whatever they are.
template <class E>
void launch(CudaContext* c, const Product& p, const void* x, int stride, const float* token_scales) {
  using F = DenseTiles<E>;
  const bool is_gated = p.gate != Gate::kNone;
  const int cols = p.cols * int(sizeof(E)) / 2;
  stride = stride * int(sizeof(E)) / 2;
  for (int i = 0; i < (is_gated ? 1 : p.outputs); ++i) {
    ManyProduct m{{p.out[i], p.out[is_gated ? 1 : i]}, p.gate, p.tokens, cols};
    m.token_scales = token_scales;
    for (int w = 0; w < 2; ++w) note(c, make_rows_map(&m.weights[w], m.out[w].weight, size_t(m.out[w].rows), cols, int(m.out[w].row_bytes / 2), kBandRows));
    if (c->error != cudaSuccess) return;
    if (p.tokens <= 32) launch_many<F, 32>(c, m, x, stride);
    else if (p.tokens <= 64) launch_many<F, 64>(c, m, x, stride);
    else launch_many<F, 128>(c, m, x, stride);
  }
}

}  // namespace

bool dense_takes(const CudaContext* c, WeightType type, const Product& p) noexcept {
  if (!c->can.hopper || (!is_fp8(type) && type != WeightType::kF16 && type != WeightType::kBF16)) return false;
  const auto takes = [&](const Output& o) { return o.row_bytes % 16 == 0 && (!is_fp8(type) || o.scale_cols == p.cols); };
  return (!is_fp8(type) || fp8_rows_take(p.cols)) && std::all_of(p.out, p.out + p.outputs, takes);
}

void multiply_dense(CudaContext* c, WeightType type, const Product& p, const LinearArgs& a) noexcept {
  if (is_fp8(type)) {
    const Fp8Inputs in = prepare_fp8(c, a, p.cols);
    return launch<__nv_fp8_e4m3>(c, p, in.codes, p.cols, in.scales);
  }
  const Halves in = half_inputs(c, type, a, p.cols);
  if (type == WeightType::kF16) launch<__half>(c, p, in.x, in.stride, nullptr);
  else launch<__nv_bfloat16>(c, p, in.x, in.stride, nullptr);
}

}  // namespace sluice::kernels::cuda
