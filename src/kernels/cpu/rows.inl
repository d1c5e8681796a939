// Operations by token: stand-alone norms, rotation and the append to the cache.

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
static void append_token(const RopeAppendArgs& a, int t) {
  const CacheType type = a.cache.type;
  const int d = a.head_dim, tokens = a.batch.block_tokens, position = a.batch.positions[t], slot = position % tokens, s = a.batch.sequence_of[t];
  const size_t value_row = cache_row_bytes(type.values, d);
  uint8_t* keys = static_cast<uint8_t*>(a.cache.keys) + block_offset(a.batch, a.cache.key_stride, s, position);
  uint8_t* values = static_cast<uint8_t*>(a.cache.values) + block_offset(a.batch, a.cache.value_stride, s, position);
  const float* k = a.k.floats() + size_t(t) * size_t(a.k_stride);
  const float* v = a.v.floats() + size_t(t) * size_t(a.v_stride);
  for (int g = 0; g < a.kv_heads; ++g, k += d, v += d) {
    uint8_t* piece = keys_in_groups(type.keys) ? step_piece(a.batch, a.cache, s, position, g, a.kv_heads, d) : keys + key_piece_offset(type.keys, d, tokens, g, slot);
    kPutKey[int(type.keys)](k, d, piece, slot % kKeyTile);
    kPutValue[int(type.values)](v, d, values + piece_offset(tokens, g, slot, value_row), slot % kKeyTile);
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
  float* const keys = a.k.floats() + size_t(t) * size_t(a.k_stride);
  if (a.key_offset && !is_float(a.cache.type.keys))
    for (int i = 0; i < a.kv_heads * d; i += kLanes) f_store_n(keys + i, f_sub(f_load_n(keys + i, a.kv_heads * d - i), f_load_n(a.key_offset + i, a.kv_heads * d - i)), a.kv_heads * d - i);
  heads(a.q.floats() + size_t(t) * size_t(a.q_stride), a.q_heads, a.q_norm);
  heads(keys, a.kv_heads, a.k_norm);
  if (is_mixed(a.cache.type.keys))
    for (int g = 0; g < a.kv_heads; ++g) mix_row(keys + g * d, d);
  append_token(a, t);
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
  if (keys_in_groups(a.cache.type.keys)) close_groups(c, a);
}
