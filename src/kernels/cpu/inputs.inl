// A linear call's inputs: the prologue, then int8 blocks (quantised weights) or a transposed copy (float weights).
//
// Tokens go in panels of as many as a register tile takes (the last panel as wide as what is left); everything a tile reads
// of its tokens lies together. Quantised panel of M tokens, per block of 32 k:
//   s8 q[M][32], f32 scale[M], f32 scale * sum[M], s32 -sum[M], s32 -(sum of k 0..15)[M], s32 -(sum of k 16..31)[M]
// Float panel of M tokens: f32 [K][M]; pair panel: two bf16 [K / 2][M][2].

template <int M>
struct BlockOf {
  int8_t q[M][kBlock];
  float scale[M], scaled_sum[M];
  int32_t minus_sum[M], minus_half[2][M];
};
static_assert(sizeof(BlockOf<1>) == kActBlockBytes && sizeof(BlockOf<8>) == 8 * kActBlockBytes);

// Columns k .. k + n of what the weights read: the inputs in their order, or in that of weights that were quantised by activation.
SIMD F prologue_at(const LinearArgs& a, const float* x, int cols, float factor, int k, int n) {
  if (const int32_t* order = a.out[0].weight.input_order) {  // n is kLanes: such types have whole blocks
    const F v = f_gather(x, order + k);
    switch (a.prologue) {
      case Prologue::kRmsNorm: return f_mul(f_mul(v, f_set1(factor)), f_gather(a.norm_weight, order + k));
      case Prologue::kSiluMul: return f_mul(v_silu(v), f_gather(x + cols, order + k));
      case Prologue::kGeluMul: return f_mul(v_gelu(v), f_gather(x + cols, order + k));
      default: return v;
    }
  }
  const F v = f_load_n(x + k, n);
  switch (a.prologue) {
    case Prologue::kRmsNorm: return f_mul(f_mul(v, f_set1(factor)), f_load_n(a.norm_weight + k, n));
    case Prologue::kSiluMul: return f_mul(v_silu(v), f_load_n(x + cols + k, n));
    case Prologue::kGeluMul: return f_mul(v_gelu(v), f_load_n(x + cols + k, n));
    default: return v;
  }
}

static inline float prologue_factor(const LinearArgs& a, const float* x, int cols) {
  return a.prologue == Prologue::kRmsNorm ? rms_factor(x, cols, a.eps) : 0.0f;
}

// 32 values to int8 with scale amax / 127, rounded to nearest even.
SIMD void quantise_block(const F* v, int8_t* q, float& scale, float& scaled_sum, int32_t& minus_sum, int32_t* minus_half,
                         int half_stride) {
  constexpr int kVectors = kBlock / kLanes;
  F amax = f_abs(v[0]);
  for (int i = 1; i < kVectors; ++i) amax = f_max(amax, f_abs(v[i]));
  const float largest = f_max_of(amax);
  scale = largest * (1.0f / 127.0f);
  // A block too small for the inverse to be finite counts as zero.
  const F inverse = f_set1(largest > 1e-36f ? 127.0f / largest : 0.0f);
  I sum[2] = {i_zero(), i_zero()};
  for (int i = 0; i < kVectors; ++i) {
    const I x = i_from_float(f_mul(v[i], inverse));
    sum[i / (kVectors / 2)] = i_add(sum[i / (kVectors / 2)], x);
    i_store_s8(q + i * kLanes, x);
  }
  int s0, s1;
  i_sums(sum[0], sum[1], s0, s1);
  scaled_sum = scale * float(s0 + s1);
  minus_sum = -(s0 + s1);
  minus_half[0] = -s0;
  minus_half[half_stride] = -s1;
}

// Token m of a quantised panel of M tokens.
static void quantise_row(const LinearArgs& a, const float* x, int cols, uint8_t* panel, int width, int m) {
  const float factor = prologue_factor(a, x, cols);
  uint8_t* block = panel;
  for (int k = 0; k < cols; k += kBlock, block += size_t(width) * kActBlockBytes) {
    F v[kBlock / kLanes];
    for (int i = 0; i < kBlock / kLanes; ++i) v[i] = prologue_at(a, x, cols, factor, k + i * kLanes, kLanes);
    auto* floats = reinterpret_cast<float*>(block + size_t(width) * kBlock);
    auto* sums = reinterpret_cast<int32_t*>(floats + 2 * width);
    quantise_block(v, reinterpret_cast<int8_t*>(block) + m * kBlock, floats[m], floats[width + m], sums[m],
                   sums + width + m, width);
  }
}

// Token m of a float panel.
static void transpose_row(const LinearArgs& a, const float* x, int cols, float* panel, int width, int m) {
  const float factor = prologue_factor(a, x, cols);
  for (int k = 0; k < cols; k += kLanes) {
    float v[kLanes];
    const int n = cols - k < kLanes ? cols - k : kLanes;
    f_store(v, prologue_at(a, x, cols, factor, k, n));
    for (int i = 0; i < n; ++i) panel[size_t(k + i) * width + m] = v[i];
  }
}

// Token m of a pair panel, from k on.
static void pair_row(const LinearArgs& a, const float* x, int cols, int k, float factor, uint32_t* panel, int width, int m) {
  for (; k < cols; k += kLanes) {
    uint16_t v[kLanes];
    const int n = cols - k < kLanes ? cols - k : kLanes;
    f_to_bf16(v, prologue_at(a, x, cols, factor, k, n));
    if (n % 2 != 0) v[n] = 0;
    for (int i = 0; i < n; i += 2) panel[size_t(k + i) / 2 * size_t(width) + m] = uint32_t(v[i]) | uint32_t(v[i + 1]) << 16;
  }
}

// A pair panel of the tokens from `first` on. A full one is turned eight by eight, so that stores are whole.
static void pair_panel_rows(const LinearArgs& a, int first, int width, int cols, uint32_t* panel) {
  constexpr int kFull = 8;
  const float* x[kFull];
  float factor[kFull];
  for (int m = 0; m < width; ++m) {
    x[m] = a.x.floats() + size_t(first + m) * size_t(a.x_stride);
    factor[m] = prologue_factor(a, x[m], cols);
  }
  int k = 0;
  if (width == kFull)
    for (; k + kLanes <= cols; k += kLanes) {
      F v[kFull];
      for (int m = 0; m < kFull; ++m) v[m] = prologue_at(a, x[m], cols, factor[m], k, kLanes);
      store_turned(v, panel + size_t(k / 2) * kFull);
    }
  for (int m = 0; m < width; ++m) pair_row(a, x[m], cols, k, factor[m], panel, width, m);
}
