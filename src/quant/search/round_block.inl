// Rounding of columns in turn.
namespace sluice::quant {
namespace {

template <class Grid>
void round_columns(const RoundBlock& r, const Grid& grid) {
  for (int j = r.n - 1; j >= 0; --j) {
    const float* u = r.upper + size_t(j) * r.stride;
    V pull = load(r.pull + j * kLanes);
    for (int i = j + 1; i < r.n; ++i) pull += u[i] * load(r.error + i * kLanes);
    const V w = load(r.w + j * kLanes), scale = load(r.scale + j * kLanes), offset = load(r.offset + j * kLanes);
    const V level = grid.nearest((w + pull * (1.0f / u[j]) - offset) * inverse(scale));
    const V error = w - (scale * level + offset);
    __builtin_memcpy(r.level + j * kLanes, &level, sizeof level);
    __builtin_memcpy(r.error + j * kLanes, &error, sizeof error);
  }
}

void round_block(const RoundBlock& r) {
  if (r.e4m3) return round_columns(r, E4m3());
  if (r.codebook) {
    BlockShape shape{};
    shape.codebook = r.codebook;
    return round_columns(r, Codebook(shape));
  }
  round_columns(r, Uniform(load(r.lo), load(r.hi)));
}

}  // namespace
}  // namespace sluice::quant
