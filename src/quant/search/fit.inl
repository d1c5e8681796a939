// The searches, once for every instruction set (isa_*.cpp). See fit.h.
#include "quant/search/lanes.inl"

#include "quant/search/group_fit.inl"
#include "quant/search/super_fit.inl"
#include "quant/search/long_fit.inl"
#include "quant/search/round_block.inl"

namespace sluice::quant {
namespace {

template <bool kOffset, class Grid>
void fit_simple(const BlockShape& shape, const float* x, const float* weights, int count, BlockCodes* out) {
  Tile<32> t;
  t.load(x, weights, count);
  const Grid grid(shape);
  GroupFit f = fit_group<kOffset>(t, grid, shape);
  // What the file can hold, and the levels for that.
  f.s = as_half(f.s);
  f.m = as_half(f.m);
  const V inv = inverse(f.s);
  for (int i = 0; i < 32; ++i) {
    const V q = grid.nearest((t.x[i] - f.m) * inv);
    for (int l = 0; l < count; ++l) out[l].level[i] = int8_t(grid.level(q[l]));
  }
  for (int l = 0; l < count; ++l) {
    out[l].d = f.s[l];
    out[l].m = f.m[l];
    out[l].scale[0] = 1;
    out[l].offset[0] = 1;
  }
}

void simple(const BlockShape& shape, const float* x, const float* weights, int count, BlockCodes* out) {
  if (shape.codebook) return fit_simple<false, Codebook>(shape, x, weights, count, out);
  if (shape.has_offset) return fit_simple<true, Uniform>(shape, x, weights, count, out);
  fit_simple<false, Uniform>(shape, x, weights, count, out);
}

void super(const BlockShape& shape, const float* x, const float* weights, BlockCodes& out) {
  if (shape.codebook) return SuperFit<32, false, Codebook>(shape, x, weights).run(out);
  if (shape.has_offset && shape.group == 32) return SuperFit<32, true, Uniform>(shape, x, weights).run(out);
  if (shape.has_offset) return SuperFit<16, true, Uniform>(shape, x, weights).run(out);
  SuperFit<16, false, Uniform>(shape, x, weights).run(out);
}

}  // namespace

extern const ProductKernels SLUICE_PRODUCTS;
extern const FitKernels SLUICE_FIT_KERNELS{simple, super, long_group, round_block, &SLUICE_PRODUCTS};

}  // namespace sluice::quant
