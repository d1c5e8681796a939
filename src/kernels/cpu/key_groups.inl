// Groups of int4 keys (tensor/cache_type.h): what a step's rows of int8 become once their tokens are all there.

// A group's keys [D][16] and what they span.
struct GroupKeys {
  alignas(64) float x[kMaxHeadDim][kKeyGroup];
  float least[kMaxHeadDim], most[kMaxHeadDim];
  float lowest = 0;  // the largest |least|
  bool finite = true;
};

static void read_group(const uint8_t* piece, int d, GroupKeys& k) {
  alignas(64) float scales[kKeyGroup];
  F poison = f_zero();
  for (int t = 0; t < kKeyGroup; t += kLanes) {
    const F scale = f_from_bf16(reinterpret_cast<const uint16_t*>(piece + kKeyGroup * d) + t);
    f_store(scales + t, scale);
    poison = f_add(poison, f_sub(scale, scale));
  }
  k.finite = f_sum(poison) == 0;
  if (!k.finite) return;
  const auto* codes = reinterpret_cast<const int8_t*>(piece);
  for (int i = 0; i < d; ++i) {
    for (int t = 0; t < kKeyGroup; ++t) k.x[i][t] = float(codes[i / 2 * 2 * kKeyGroup + 2 * t + i % 2]) * scales[t];
    F low = f_load(k.x[i]), high = low;
    for (int t = kLanes; t < kKeyGroup; t += kLanes) {
      low = f_min(low, f_load(k.x[i] + t));
      high = f_max(high, f_load(k.x[i] + t));
    }
    k.least[i] = -f_max_of(f_sub(f_zero(), low));
    k.most[i] = f_max_of(high);
    const float size = k.least[i] < 0 ? -k.least[i] : k.least[i];
    if (size > k.lowest) k.lowest = size;
  }
}

// The scales' and minima's bytes and units, as quant::close_key_group has them.
static void scale_group(const GroupKeys& k, int d, uint8_t* s, int8_t* m, float& scale_unit, float& minimum_unit) {
  minimum_unit = bf16_up(k.lowest / 127.0f);
  const float by_minimum = minimum_unit > 0 ? 1 / minimum_unit : 0.0f;
  float widest = 0;
  for (int i = 0; i < d; ++i) {
    const float least = __builtin_floorf(k.least[i] * by_minimum);
    m[i] = int8_t(least < -127.0f ? -127.0f : least > 127.0f ? 127.0f : least);
    const float width = k.most[i] - float(m[i]) * minimum_unit;
    if (width > widest) widest = width;
  }
  scale_unit = bf16_up(widest / (15.0f * 255.0f));
  const float by_scale = scale_unit > 0 ? 1 / (15.0f * scale_unit) : 0.0f;
  for (int i = 0; i < d; ++i) {
    const float scale = __builtin_ceilf((k.most[i] - float(m[i]) * minimum_unit) * by_scale);
    s[i] = uint8_t(scale > 255.0f ? 255.0f : scale);
  }
}

// A piece of int8 becomes one of int4.
static void close_group(const uint8_t* piece, int d, uint8_t* out) {
  GroupKeys k;
  read_group(piece, d, k);
  uint8_t* const s = out + d * kKeyGroup / 2;
  auto* const m = reinterpret_cast<int8_t*>(s + d);
  float scale_unit = __builtin_nanf(""), minimum_unit = 0;
  if (k.finite) scale_group(k, d, s, m, scale_unit, minimum_unit);
  else __builtin_memset(out, 0, size_t(d) * (kKeyGroup / 2 + 2));
  const uint16_t units[2] = {bf16_bits(scale_unit), bf16_bits(minimum_unit)};
  __builtin_memcpy(m + d, units, sizeof units);
  if (!k.finite) return;
  int8_t codes[4][kKeyGroup];
  for (int c = 0; c < d; c += 4, out += 2 * kKeyGroup) {
    for (int i = 0; i < 4; ++i) {
      const float scale = float(s[c + i]) * scale_unit;
      const F minimum = f_set1(float(m[c + i]) * minimum_unit), factor = f_set1(scale > 0 ? 1 / scale : 0.0f);
      for (int t = 0; t < kKeyGroup; t += kLanes) {
        const F v = f_mul(f_sub(f_load(k.x[c + i] + t), minimum), factor);
        i_store_s8(codes[i] + t, i_from_float(f_max(f_zero(), f_min(f_set1(15.0f), v))));
      }
    }
    for (int t = 0; t < kKeyGroup; ++t) {
      out[2 * t] = uint8_t(codes[0][t] | codes[2][t] << 4);
      out[2 * t + 1] = uint8_t(codes[1][t] | codes[3][t] << 4);
    }
  }
}

// Tokens [begin, end) of a piece of int8 from another; zeros, where that is null.
static void copy_tokens(const uint8_t* from, int begin, int end, int d, uint8_t* to) {
  const auto copy = [&](size_t at) {
    const size_t first = at + 2 * size_t(begin), n = 2 * size_t(end - begin);
    if (from) __builtin_memcpy(to + first, from + first, n);
    else __builtin_memset(to + first, 0, n);
  };
  for (int i = 0; i <= d; i += 2) copy(size_t(i) * kKeyGroup);  // pairs of dimensions, then the scales
}

// The groups that one sequence's tokens are in, of one head: earlier tokens of the first come from the cache, what is full is closed, and
// an open group goes to the cache whole, with zeros for who is not there yet, so that its bytes too depend on its tokens alone.
static void groups_task(void* p, int index, int) noexcept {
  const RopeAppendArgs& a = *static_cast<const RopeAppendArgs*>(p);
  const BatchView& b = a.batch;
  const int s = index / a.kv_heads, g = index % a.kv_heads, d = a.head_dim, tokens = b.block_tokens;
  if (b.query_begin[s] == b.query_begin[s + 1]) return;
  const int begin = b.positions[b.query_begin[s]], end = b.positions[b.query_begin[s + 1] - 1] + 1;
  for (int from = begin / kKeyGroup * kKeyGroup; from < end; from += kKeyGroup) {
    uint8_t* kept = static_cast<uint8_t*>(a.cache.keys) + block_offset(b, a.cache.key_stride, s, from) +
                    key_piece_offset(a.cache.type.keys, d, tokens, g, from % tokens);
    uint8_t* piece = step_piece(b, a.cache, s, from, g, a.kv_heads, d);
    if (from < begin) copy_tokens(kept, 0, begin - from, d, piece);
    if (from + kKeyGroup <= end) {
      close_group(piece, d, kept);
      __builtin_memset(kept + closed_group_bytes(d), 0, open_group_bytes(d) - closed_group_bytes(d));  // where rows may have been
      continue;
    }
    copy_tokens(nullptr, end - from, kKeyGroup, d, piece);
    __builtin_memcpy(kept, piece, open_group_bytes(d));
  }
}

static void close_groups(Context* c, const RopeAppendArgs& a) {
  const int tasks = a.batch.num_sequences * a.kv_heads;
  void* arg = const_cast<RopeAppendArgs*>(&a);
  if (a.batch.num_tokens > kKeyGroup) return run_tasks(c, tasks, groups_task, arg);
  for (int i = 0; i < tasks; ++i) groups_task(arg, i, 0);  // not worth waking anyone
}
