// linear: inputs once for all outputs, then products over (row tiles x token panels), tasks claimed by whoever is free.

constexpr int kMaxTokensInTile = kQuantTokens > kFloatTokens ? kQuantTokens : kFloatTokens;

// fn[m]: one row vector by m tokens; fn[0]: kRowVectors1 row vectors by one token; again: one row vector by the most tokens,
// when an earlier panel has just read the weights; half[m]: as fn[m], where two panels read them.
struct TileTable { TileFn fn[kMaxTokensInTile + 1], again, half[kMaxTokensInTile + 1]; };

template <WeightType T, int R, int M, Ahead A>
constexpr TileFn tile_fn() {
  constexpr int kMost = is_float_type(T) ? kFloatTokens : kQuantTokens;
  if constexpr (M > kMost) {
    return nullptr;
  } else if constexpr (T == WeightType::kBF16 && kPairProducts) {
    return pair_tile<R, M, A>;
  } else if constexpr (is_fp8(T)) {
    return fp8_tile<T, R, M, A>;
  } else if constexpr (is_float_type(T)) {
    return float_tile<T, R, M, A>;
  } else {
    return quant_tile<T, R, M, A>;
  }
}
template <WeightType T, Ahead A, int... M>
constexpr void fill_tiles(TileFn* fn, std::integer_sequence<int, M...>) {
  ((fn[M + 1] = tile_fn<T, 1, M + 1, A>()), ...);
}
template <WeightType T>
constexpr TileTable tile_table() {
  TileTable t{};
  fill_tiles<T, Ahead::kAll>(t.fn, std::make_integer_sequence<int, kMaxTokensInTile>());
  fill_tiles<T, Ahead::kHalf>(t.half, std::make_integer_sequence<int, kMaxTokensInTile>());
  t.fn[0] = tile_fn<T, kRowVectors1, 1, Ahead::kAll>();
  t.again = tile_fn<T, 1, is_float_type(T) ? kFloatTokens : kQuantTokens, Ahead::kNone>();
  return t;
}

static const TileTable* tile_functions(WeightType type) {
  switch (type) {
#define SLUICE_TILES(T)                                                \
  case WeightType::T: {                                                \
    static constexpr TileTable kTable = tile_table<WeightType::T>();   \
    return &kTable;                                               \
  }
    SLUICE_TILES(kF32) SLUICE_TILES(kF16) SLUICE_TILES(kBF16) SLUICE_TILES(kQ4_0) SLUICE_TILES(kQ4_1) SLUICE_TILES(kQ5_0)
    SLUICE_TILES(kQ5_1) SLUICE_TILES(kQ8_0) SLUICE_TILES(kQ4_K) SLUICE_TILES(kQ5_K) SLUICE_TILES(kQ6_K)
    SLUICE_TILES(kQ2_K) SLUICE_TILES(kQ3_K) SLUICE_TILES(kIQ4_NL) SLUICE_TILES(kIQ4_XS)
    SLUICE_TILES(kInt4_32) SLUICE_TILES(kInt4_64) SLUICE_TILES(kInt4_128) SLUICE_TILES(kInt8_32) SLUICE_TILES(kInt8_64)
    SLUICE_TILES(kInt8_128) SLUICE_TILES(kFp8_32) SLUICE_TILES(kFp8_64) SLUICE_TILES(kFp8_128)
#undef SLUICE_TILES
    default: break;  // no kernel: packed_bytes said so
  }
  return nullptr;
}

constexpr int kTokensPerInputTask = 8;  // whole panels
static_assert(kTokensPerInputTask % kQuantTokens == 0 && kTokensPerInputTask % kFloatTokens == 0);
constexpr int kSmallInput = 16384;       // elements that the caller prepares alone: less work than a barrier's wait
constexpr int kPanelsPerTask = 32;
constexpr size_t kGroupBytes = 16384;    // weights that should stay in the first-level cache while panels stream by

struct LinearJob {
  const LinearArgs* args;
  Context* context;
  int cols;
  bool any_quant, any_float, any_pairs;
  int tiles[kMaxLinearOutputs];
  size_t tile_bytes[kMaxLinearOutputs];
  int group;                             // row tiles a task
  int groups[kMaxLinearOutputs];         // tasks' row groups by output
  int total_groups, panel_tasks;
};

// Where the panel that begins with this token starts.
SIMD uint8_t* quant_panel(const LinearJob& j, int first_token) {
  return j.context->act_quant + size_t(first_token) * (j.cols / kBlock) * kActBlockBytes;
}
SIMD bool in_pairs(WeightType type) { return kPairProducts && type == WeightType::kBF16; }
SIMD uint32_t* pair_panel(const LinearJob& j, int first_token) {
  return j.context->act_pairs + size_t(first_token) * size_t((j.cols + 1) / 2);
}
SIMD float* float_panel(const LinearJob& j, int first_token) {
  return j.context->act_float + size_t(first_token) * size_t(j.cols);
}

static void prepare_token(const LinearJob& j, int t) {
  const LinearArgs& a = *j.args;
  const float* x = a.x.floats() + size_t(t) * size_t(a.x_stride);
  const auto width = [&](int most) { return a.num_tokens - t / most * most < most ? a.num_tokens % most : most; };
  if (j.any_quant)
    quantise_row(a, x, j.cols, quant_panel(j, t / kQuantTokens * kQuantTokens), width(kQuantTokens), t % kQuantTokens);
  if (j.any_float)
    transpose_row(a, x, j.cols, float_panel(j, t / kFloatTokens * kFloatTokens), width(kFloatTokens), t % kFloatTokens);
  if (j.any_pairs && t % kFloatTokens == 0) pair_panel_rows(a, t, width(kFloatTokens), j.cols, pair_panel(j, t));
}

static void input_task(void* p, int i, int) noexcept {
  const LinearJob& j = *static_cast<const LinearJob*>(p);
  const int end = (i + 1) * kTokensPerInputTask < j.args->num_tokens ? (i + 1) * kTokensPerInputTask : j.args->num_tokens;
  for (int t = i * kTokensPerInputTask; t < end; ++t) prepare_token(j, t);
}

// Row tiles [tile0, tile1) of an output by tokens [token0, token1), which start at a panel.
static void product(const LinearJob& j, int output, int tile0, int tile1, int token0, int token1) {
  const LinearOutput& o = j.args->out[output];
  const TileTable& table = *tile_functions(o.weight.type);
  const bool floats = is_float_type(o.weight.type);
  const int most = floats ? kFloatTokens : kQuantTokens;
  TileArgs t{static_cast<const uint8_t*>(o.weight.data), j.tile_bytes[output], 0, j.cols, nullptr, &o, 0, 0};
  const bool two_panels = token1 - token0 > most && token1 - token0 <= 2 * most;
  const int end = tile1 * kParts;
  for (int token = token0; token < token1; token += most) {
    const int m = token1 - token < most ? token1 - token : most;
    t.token = token;
    t.panel = in_pairs(o.weight.type) ? static_cast<const void*>(pair_panel(j, token))
              : floats                ? static_cast<const void*>(float_panel(j, token))
                                      : quant_panel(j, token);
    t.row_vector = tile0 * kParts;
    if (m == 1)
      for (; t.row_vector + kRowVectors1 <= end; t.row_vector += kRowVectors1) table.fn[0](t);
    t.next = size_t(tile1 - tile0) * t.tile_bytes + (token != token0 ? 64 : 0);
    const TileFn fn = two_panels ? table.half[m] : m == most && token != token0 ? table.again : table.fn[m];
    for (; t.row_vector < end; ++t.row_vector) fn(t);
  }
}

static void product_task(void* p, int i, int) noexcept {
  const LinearJob& j = *static_cast<const LinearJob*>(p);
  int group = i / j.panel_tasks, output = 0;
  for (; group >= j.groups[output]; ++output) group -= j.groups[output];
  const int tile0 = group * j.group;
  const int tile1 = tile0 + j.group < j.tiles[output] ? tile0 + j.group : j.tiles[output];
  const int step = kPanelsPerTask * kMaxTokensInTile, token0 = i % j.panel_tasks * step;
  const int token1 = token0 + step < j.args->num_tokens ? token0 + step : j.args->num_tokens;
  product(j, output, tile0, tile1, token0, token1);
}

// Row tiles a task: for one panel enough tasks for the threads, for many what the first-level cache holds.
static int group_size(const LinearJob& j, int total_tiles, size_t largest_tile) {
  if (j.args->num_tokens > kMaxTokensInTile) {
    const int fit = int(kGroupBytes / largest_tile);
    return fit < 1 ? 1 : fit;
  }
  const int threads = j.context->threads;
  if (threads == 1) return total_tiles;
  const int group = (total_tiles / (threads * 6) + 1) / 2 * 2;
  return group < 2 ? 2 : group;
}

static void linear(Context* c, const LinearArgs& a) noexcept {
  if (a.num_tokens <= 0 || a.num_outputs <= 0) return;
  if (orders_differ(a)) return one_output_at_a_time(c, a, linear);
  LinearJob j{};
  j.args = &a;
  j.context = c;
  j.cols = a.out[0].weight.cols;
  int total_tiles = 0;
  size_t largest_tile = 1;
  for (int i = 0; i < a.num_outputs; ++i) {
    const PackedWeight& w = a.out[i].weight;
    (in_pairs(w.type) ? j.any_pairs : is_float_type(w.type) ? j.any_float : j.any_quant) = true;
    j.tiles[i] = (w.rows + kTileRows - 1) / kTileRows;
    j.tile_bytes[i] = tile_bytes(w.type, w.cols);
    total_tiles += j.tiles[i];
    if (j.tile_bytes[i] > largest_tile) largest_tile = j.tile_bytes[i];
  }
  if (a.num_tokens == 1 || int64_t(a.num_tokens) * j.cols <= kSmallInput) {
    for (int t = 0; t < a.num_tokens; ++t) prepare_token(j, t);
  } else {
    run_tasks(c, (a.num_tokens + kTokensPerInputTask - 1) / kTokensPerInputTask, input_task, &j);
  }
  j.group = group_size(j, total_tiles, largest_tile);
  for (int i = 0; i < a.num_outputs; ++i) j.total_groups += j.groups[i] = (j.tiles[i] + j.group - 1) / j.group;
  const int step = kPanelsPerTask * kMaxTokensInTile;
  j.panel_tasks = (a.num_tokens + step - 1) / step;
  run_tasks(c, j.total_groups * j.panel_tasks, product_task, &j);
}
