// Operations by token: stand-alone norms, rotation and the append to the cache.
//
// Cache block: keys [G][block_tokens / 16][D][16 tokens], so that one vector load is one dimension of 16 keys;
// values [G][block_tokens][D].

constexpr int kKeyTile = 16;

// Elements of the cache by type; F16 is clamped, since an infinite key or value would spoil every later token.
template <DType T> struct Element;
template <> struct Element<DType::kF32> {
  using Type = float;
  SIMD F load(const float* p) { return f_load(p); }
  SIMD void store(float* p, F v) { f_store(p, v); }
};
template <> struct Element<DType::kF16> {
  using Type = uint16_t;
  SIMD F load(const uint16_t* p) { return f_from_half(p); }
  SIMD void store(uint16_t* p, F v) { f_to_half(p, f_max(f_set1(-65504.0f), f_min(f_set1(65504.0f), v))); }
};
template <> struct Element<DType::kBF16> {
  using Type = uint16_t;
  SIMD F load(const uint16_t* p) { return f_from_bf16(p); }
  SIMD void store(uint16_t* p, F v) { f_to_bf16(p, v); }
};

static void norm_row(const float* x, const float* weight, float eps, int n, float* y, bool accumulate) {
  const float factor = rms_factor(x, n, eps);
  for (int k = 0; k < n; k += kLanes) {
    F v = f_mul(f_load_n(x + k, n - k), f_set1(factor));
    if (weight) v = f_mul(v, f_load_n(weight + k, n - k));
    if (accumulate) v = f_add(f_load_n(y + k, n - k), v);
    f_store_n(y + k, v, n - k);
  }
}

constexpr int kSmallNorm = 32768;  // elements below which other workers are not called

static void norm_task(void* p, int t, int) noexcept {
  const NormArgs& a = *static_cast<const NormArgs*>(p);
  norm_row(a.x + size_t(t) * size_t(a.x_stride), a.weight, a.eps, a.dim, a.y + size_t(t) * size_t(a.y_stride), a.accumulate);
}

static void norm(Context* c, const NormArgs& a) noexcept {
  void* arg = const_cast<NormArgs*>(&a);
  if (int64_t(a.num_tokens) * a.dim > kSmallNorm) return run_tasks(c, a.num_tokens, norm_task, arg);
  for (int t = 0; t < a.num_tokens; ++t) norm_task(arg, t, 0);
}

// Byte offset of the block that holds `position` of sequence s.
SIMD size_t block_offset(const BatchView& b, const CacheView& c, int s, int position) {
  return size_t(b.block_ids[b.block_begin[s] + position / b.block_tokens]) * c.block_stride;
}

static void rotate_row(const RopeAppendArgs& a, float* x, int position) {
  const int half = a.rope_dims / 2;
  const float* cos = a.cos_table + size_t(position) * size_t(half);
  const float* sin = a.sin_table + size_t(position) * size_t(half);
  if (a.style == RopeStyle::kInterleaved) {
    for (int i = 0; i < half; ++i) {
      const float x0 = x[2 * i], x1 = x[2 * i + 1];
      x[2 * i] = x0 * cos[i] - x1 * sin[i];
      x[2 * i + 1] = x0 * sin[i] + x1 * cos[i];
    }
    return;
  }
  for (int i = 0; i < half; i += kLanes) {
    const int n = half - i;
    const F x0 = f_load_n(x + i, n), x1 = f_load_n(x + half + i, n), c = f_load_n(cos + i, n), s = f_load_n(sin + i, n);
    f_store_n(x + i, f_sub(f_mul(x0, c), f_mul(x1, s)), n);
    f_store_n(x + half + i, f_add(f_mul(x0, s), f_mul(x1, c)), n);
  }
}

// One token's keys and values of every KV head.
template <DType T>
static void append_token(const RopeAppendArgs& a, int t) {
  using E = typename Element<T>::Type;
  const int d = a.head_dim, tokens = a.batch.block_tokens, slot = a.batch.positions[t] % tokens;
  const size_t offset = block_offset(a.batch, a.cache, a.batch.sequence_of[t], a.batch.positions[t]);
  E* keys = reinterpret_cast<E*>(static_cast<char*>(a.cache.keys) + offset);
  E* values = reinterpret_cast<E*>(static_cast<char*>(a.cache.values) + offset);
  for (int g = 0; g < a.kv_heads; ++g) {
    E row[kMaxHeadDim];
    const float* k = a.k.floats() + size_t(t) * size_t(a.k_stride) + size_t(g) * size_t(d);
    const float* v = a.v.floats() + size_t(t) * size_t(a.v_stride) + size_t(g) * size_t(d);
    E* key = keys + size_t(g * (tokens / kKeyTile) + slot / kKeyTile) * size_t(d) * kKeyTile + slot % kKeyTile;
    E* value = values + (size_t(g) * size_t(tokens) + size_t(slot)) * size_t(d);
    for (int i = 0; i < d; i += kLanes) Element<T>::store(row + i, f_load_n(k + i, d - i));
    for (int i = 0; i < d; ++i) key[size_t(i) * kKeyTile] = row[i];
    for (int i = 0; i < d; i += kLanes) Element<T>::store(row + i, f_load_n(v + i, d - i));
    __builtin_memcpy(value, row, size_t(d) * sizeof(E));
  }
}

static void rope_token(const RopeAppendArgs& a, int t) {
  const int position = a.batch.positions[t], d = a.head_dim;
  const auto heads = [&](float* x, int n, const float* weight) {
    for (int h = 0; h < n; ++h, x += d) {
      if (weight) norm_row(x, weight, a.eps, d, x, false);
      rotate_row(a, x, position);
    }
  };
  heads(a.q.floats() + size_t(t) * size_t(a.q_stride), a.q_heads, a.q_norm);
  heads(a.k.floats() + size_t(t) * size_t(a.k_stride), a.kv_heads, a.k_norm);
  switch (a.cache.dtype) {
    case DType::kF32: return append_token<DType::kF32>(a, t);
    case DType::kF16: return append_token<DType::kF16>(a, t);
    case DType::kBF16: return append_token<DType::kBF16>(a, t);
  }
}

// Neighbouring tokens share cache lines of keys, so a task is a run of them.
constexpr int kRopeTokensPerTask = kKeyTile;

static void rope_task(void* p, int i, int) noexcept {
  const RopeAppendArgs& a = *static_cast<const RopeAppendArgs*>(p);
  const int end = (i + 1) * kRopeTokensPerTask;
  for (int t = i * kRopeTokensPerTask; t < end && t < a.batch.num_tokens; ++t) rope_token(a, t);
}

static void rope_append(Context* c, const RopeAppendArgs& a) noexcept {
  const int tasks = (a.batch.num_tokens + kRopeTokensPerTask - 1) / kRopeTokensPerTask;
  run_tasks(c, tasks, rope_task, const_cast<RopeAppendArgs*>(&a));
}
