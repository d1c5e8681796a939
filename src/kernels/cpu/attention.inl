// attention: tasks of (sequence, KV head, group of query rows), or one for each split of the keys where few long sequences
// would leave workers idle. Splits are folded apart and merged in order either way, so both give the same bits.

// What a tile does with keys and with values, by their types and the number of rows.
using ScoreFn = void (*)(const RowGroup&, const TilePieces&, float (*scores)[kTile]);
using ValueFn = void (*)(const RowGroup&, const TilePieces&, float (*weights)[kTile], Fold&, const int* begin, const int* end);
using OffsetFn = void (*)(const RowGroup&, const Turns&, int tile, int first, int last, float (*scores)[kTile]);
struct TileFns {
  ScoreFn score;
  OffsetFn offset;
  ValueFn add;
  const Turns* turns;  // where keys have an offset
};

// Folds the tiles of [split_begin, split_end) into f (which starts empty).
static void fold_split(const RowGroup& g, const TileFns& fns, int split_begin, int split_end, Fold& f) {
  const int dims = g.args->head_dim;
  for (int r = 0; r < g.rows; ++r) {
    f.max[r] = kMinusInfinity;
    f.sum[r] = 0;
    for (int d = 0; d < dims; d += kLanes) f_store(f.acc[r] + d, f_zero());
  }
  const int start = g.lowest > split_begin ? g.lowest / kTile * kTile : split_begin;
  const int stop = g.highest < split_end ? g.highest : split_end;
  alignas(64) float scores[kAttentionRows][kTile];
  for (int tile = start; tile < stop; tile += kTile) {
    TilePieces pieces;
    find_pieces(g, tile, pieces);
    fns.score(g, pieces, scores);
    if (fns.turns) fns.offset(g, *fns.turns, tile, pieces.first, pieces.last, scores);
    int begin[kAttentionRows], end[kAttentionRows];
    for (int r = 0; r < g.rows; ++r) {
      begin[r] = g.begin[r] > tile ? g.begin[r] - tile : 0;
      end[r] = g.end[r] < tile + kTile ? g.end[r] - tile : kTile;
      if (begin[r] >= end[r]) {
        begin[r] = end[r] = 0;
        continue;
      }
      const float shrink = weigh_row(*g.args, scores[r], begin[r], end[r], f.max[r], f.sum[r]);
      if (shrink != 1.0f)
        for (int d = 0; d < dims; d += kLanes) f_store(f.acc[r] + d, f_mul(f_load(f.acc[r] + d), f_set1(shrink)));
    }
    fns.add(g, pieces, scores, f, begin, end);
  }
}

// By the type of keys or values, and the rows less one.
template <CacheElement E, int... R>
constexpr void put_fns(ScoreFn* score, ValueFn* add, std::integer_sequence<int, R...>) {
  ((score[R] = score_tile<E, R + 1>), ...);
  ((add[R] = fold_values<E, R + 1>), ...);
}
template <int... R>
constexpr void put_offset_fns(OffsetFn* offset, std::integer_sequence<int, R...>) {
  ((offset[R] = add_offsets<R + 1>), ...);
}
struct FnTables {
  OffsetFn offset[kAttentionRows];
  ScoreFn score[std::size(kCacheElements)][kAttentionRows];
  ValueFn add[std::size(kCacheElements)][kAttentionRows];
};
template <int... E>
constexpr FnTables make_fn_tables(std::integer_sequence<int, E...>) {
  FnTables t{};
  put_offset_fns(t.offset, std::make_integer_sequence<int, kAttentionRows>{});
  (put_fns<CacheElement(E)>(t.score[E], t.add[E], std::make_integer_sequence<int, kAttentionRows>{}), ...);
  return t;
}
constexpr FnTables kFns = make_fn_tables(std::make_integer_sequence<int, int(std::size(kCacheElements))>{});

struct AttentionJob {
  const AttentionArgs* args;
  Context* context;
  int units;       // row groups over sequences and KV heads
  int max_splits;
  size_t record;   // floats of one row's partial result
  const Turns* turns;
};

static TileFns tile_fns(const AttentionJob& j, int rows) {
  const CacheType type = j.args->cache.type;
  return {kFns.score[int(type.keys)][rows - 1], kFns.offset[rows - 1], kFns.add[int(type.values)][rows - 1], j.turns};
}

SIMD int row_groups(const AttentionArgs& a, int s) {
  const int tokens = a.batch.query_begin[s + 1] - a.batch.query_begin[s];
  return (tokens * (a.q_heads / a.kv_heads) + kAttentionRows - 1) / kAttentionRows;
}

static void find_own_groups(RowGroup& g) {
  const AttentionArgs& a = *g.args;
  g.closed = 0;
  for (int r = 0; r < g.rows; ++r) {
    const int begin = g.end[r] / kKeyGroup * kKeyGroup;  // past the last position, so that a group's last reads it closed
    g.own_begin[r] = begin;
    g.own[r] = begin < g.end[r] ? step_piece(a.batch, a.cache, g.sequence, begin, g.kv_head, a.kv_heads, a.head_dim) : nullptr;
    if (begin > g.closed) g.closed = begin;
  }
}

// Unit `unit` of the job: rows are (token, head of the KV head's group), token by token.
static void open_group(const AttentionArgs& a, int unit, RowGroup& g) {
  int s = 0;
  for (int n; unit >= (n = row_groups(a, s) * a.kv_heads); ++s) unit -= n;
  const int heads = a.q_heads / a.kv_heads, first = unit / a.kv_heads * kAttentionRows;
  const int total = (a.batch.query_begin[s + 1] - a.batch.query_begin[s]) * heads;
  g.args = &a;
  g.sequence = s;
  g.kv_head = unit % a.kv_heads;
  g.rows = total - first < kAttentionRows ? total - first : kAttentionRows;
  g.lowest = 0x7FFFFFFF;
  g.highest = 0;
  for (int r = 0; r < g.rows; ++r) {
    const int t = a.batch.query_begin[s] + (first + r) / heads, h = g.kv_head * heads + (first + r) % heads;
    const int position = a.batch.positions[t];
    g.begin[r] = a.window > 0 && position >= a.window ? position - a.window + 1 : 0;
    g.end[r] = position + 1;
    if (g.begin[r] < g.lowest) g.lowest = g.begin[r];
    if (g.end[r] > g.highest) g.highest = g.end[r];
    g.out[r] = a.out.floats() + size_t(t) * size_t(a.out_stride) + size_t(h) * size_t(a.head_dim);
    const float* q = a.q.floats() + size_t(t) * size_t(a.q_stride) + size_t(h) * size_t(a.head_dim);
    for (int d = 0; d < a.head_dim; d += kLanes)
      f_store(g.q[r] + d, f_mul(f_load_n(q + d, a.head_dim - d), f_set1(a.scale)));
  }
  pair_queries(a.cache.type.keys, g);
  if (keys_in_groups(a.cache.type.keys)) find_own_groups(g);
}

// (max, sum, acc) takes in a later split's; an empty side leaves the other as it is.
static void merge_row(float& max, float& sum, float* acc, float other_max, float other_sum, const float* other, int dims) {
  if (other_max == kMinusInfinity) return;
  if (max == kMinusInfinity) {
    max = other_max;
    sum = other_sum;
    for (int d = 0; d < dims; d += kLanes) f_store(acc + d, f_load(other + d));
    return;
  }
  const float top = max > other_max ? max : other_max;
  const float mine = exp_of(max - top), theirs = exp_of(other_max - top);
  sum = sum * mine + other_sum * theirs;
  for (int d = 0; d < dims; d += kLanes)
    f_store(acc + d, f_fma(f_load(other + d), f_set1(theirs), f_mul(f_load(acc + d), f_set1(mine))));
  max = top;
}

static void write_row(const RowGroup& g, int r, float sum, const float* acc) {
  const int dims = g.args->head_dim;
  const F inverse = f_set1(1.0f / sum);
  for (int d = 0; d < dims; d += kLanes) f_store_n(g.out[r] + d, f_mul(f_load(acc + d), inverse), dims - d);
}

// All splits of one unit, one after the other.
static void unit_task(void* p, int i, int) noexcept {
  const AttentionJob& j = *static_cast<const AttentionJob*>(p);
  const AttentionArgs& a = *j.args;
  RowGroup g;
  open_group(a, j.units - 1 - i, g);  // the longest first: they come last in a causal chunk
  const TileFns fns = tile_fns(j, g.rows);
  Fold all, part;
  const int first = g.lowest / kSplit, last = (g.highest - 1) / kSplit;
  fold_split(g, fns, first * kSplit, (first + 1) * kSplit, all);
  for (int split = first + 1; split <= last; ++split) {
    fold_split(g, fns, split * kSplit, (split + 1) * kSplit, part);
    for (int r = 0; r < g.rows; ++r)
      merge_row(all.max[r], all.sum[r], all.acc[r], part.max[r], part.sum[r], part.acc[r], a.head_dim);
  }
  for (int r = 0; r < g.rows; ++r) write_row(g, r, all.sum[r], all.acc[r]);
}

SIMD float* partial_at(const AttentionJob& j, int unit, int split, int row) {
  const size_t group = size_t(unit) * size_t(j.max_splits) + size_t(split);
  return j.context->partials + (group * kAttentionRows + size_t(row)) * j.record;
}

static void split_task(void* p, int i, int) noexcept {
  const AttentionJob& j = *static_cast<const AttentionJob*>(p);
  const int unit = i / j.max_splits, split = i % j.max_splits, dims = j.args->head_dim;
  RowGroup g;
  open_group(*j.args, unit, g);
  if (split < g.lowest / kSplit || split > (g.highest - 1) / kSplit) return;
  Fold f;
  fold_split(g, tile_fns(j, g.rows), split * kSplit, (split + 1) * kSplit, f);
  for (int r = 0; r < g.rows; ++r) {
    float* out = partial_at(j, unit, split, r);
    for (int d = 0; d < dims; d += kLanes) f_store(out + d, f_load(f.acc[r] + d));
    out[j.record - 2] = f.max[r];
    out[j.record - 1] = f.sum[r];
  }
}

static void merge_task(void* p, int unit, int) noexcept {
  const AttentionJob& j = *static_cast<const AttentionJob*>(p);
  RowGroup g;
  open_group(*j.args, unit, g);
  for (int r = 0; r < g.rows; ++r) {
    const int first = g.lowest / kSplit, last = (g.highest - 1) / kSplit;
    float* all = partial_at(j, unit, first, r);
    float max = all[j.record - 2], sum = all[j.record - 1];
    for (int split = first + 1; split <= last; ++split) {
      const float* part = partial_at(j, unit, split, r);
      merge_row(max, sum, all, part[j.record - 2], part[j.record - 1], part, j.args->head_dim);
    }
    write_row(g, r, sum, all);
  }
}

static void attention(Context* c, const AttentionArgs& a) noexcept {
  if (a.append) rope_append(c, *a.append);
  AttentionJob j{&a, c, 0, 1, size_t((a.head_dim + kLanes - 1) / kLanes * kLanes + 2), nullptr};
  alignas(64) Turns turns;
  int longest = 0;
  for (int s = 0; s < a.batch.num_sequences; ++s) {
    j.units += row_groups(a, s) * a.kv_heads;
    const int splits = (a.batch.kv_len[s] + kSplit - 1) / kSplit;
    if (splits > j.max_splits) j.max_splits = splits;
    if (a.batch.kv_len[s] > longest) longest = a.batch.kv_len[s];
  }
  if (a.key_offset && !is_float(a.cache.type.keys)) {
    fill_turns(a, longest, turns);
    j.turns = &turns;
  }
  const size_t floats = size_t(j.units) * size_t(j.max_splits) * kAttentionRows * j.record;
  if (c->threads > 1 && j.max_splits > 1 && j.units < 4 * c->threads && floats <= c->partials_floats) {
    run_tasks(c, j.units * j.max_splits, split_task, &j);
    run_tasks(c, j.units, merge_task, &j);
  } else {
    run_tasks(c, j.units, unit_task, &j);
  }
}
