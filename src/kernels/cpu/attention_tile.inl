// Attention of up to kAttentionRows query rows of one KV head over one split of the keys.
//
// Keys come in tiles of 64 and splits of 512, both at absolute positions, and a row folds the tiles that hold a key of its
// own, in order: what a row computes depends on its position alone, not on the rows that share the loads. Values that a row
// may not see are never multiplied in, or as whole numbers times zero, so what unused cache slots hold does not matter.
// Quantised rows are read as they are: no tile of floats is ever written.

constexpr int kTile = 64, kSplit = 512, kPieces = kTile / kKeyTile;
constexpr int kRowStride = kMaxHeadDim + 16;  // floats: rows do not fall on the same cache sets
constexpr float kMinusInfinity = -__builtin_inff();

// Running softmax of a group of rows: maximum, sum of weights and weighted sum of values.
struct Fold {
  float max[kAttentionRows], sum[kAttentionRows];
  alignas(64) float acc[kAttentionRows][kRowStride];
};

struct RowGroup {
  const AttentionArgs* args;
  int sequence, kv_head, rows;
  int begin[kAttentionRows], end[kAttentionRows];  // keys that each row sees
  int lowest, highest;                             // over the rows
  float* out[kAttentionRows];
  alignas(64) float q[kAttentionRows][kRowStride];  // times the scale
  // For keys that are no floats: the same in pairs of 16-bit numbers, and what one of them is worth.
  alignas(64) int32_t pairs[kAttentionRows][kMaxHeadDim / 2];
  float unit[kAttentionRows];
  // Of keys with an offset: see turn_query.
  alignas(64) float turn[kAttentionRows][2][kMaxHeadDim / 2];
  float still[kAttentionRows];
  // Of keys in groups: each row's own group as rows of int8, null for one that reads it closed, and its first position; before `closed` are
  // all keys that some row reads closed.
  const uint8_t* own[kAttentionRows];
  int own_begin[kAttentionRows];
  int closed;
};

SIMD float exp_of(float x) {
  float v[kLanes];
  f_store(v, v_exp(f_set1(x)));
  return v[0];
}

// The 16-key pieces of a tile, and which of them hold a key that some row sees.
struct TilePieces {
  const uint8_t* keys[kPieces];
  const uint8_t* values[kPieces];
  // The same pieces of the next tile (or this one's again), to be asked for ahead: block tables defeat the hardware's
  // guesses, and a long context is read at the speed of these requests.
  const uint8_t* next_keys[kPieces];
  const uint8_t* next_values[kPieces];
  int tile, first, last;
};

SIMD void prefetch(const void* p) { __builtin_prefetch(p); }

static void find_pieces(const RowGroup& g, int tile, TilePieces& out) {
  const AttentionArgs& a = *g.args;
  const int lo = g.lowest > tile ? g.lowest - tile : 0, hi = g.highest < tile + kTile ? g.highest - tile : kTile;
  out.first = lo / kKeyTile;
  out.last = (hi + kKeyTile - 1) / kKeyTile;
  out.tile = tile;
  const int tokens = a.batch.block_tokens;
  const size_t value_row = cache_row_bytes(a.cache.type.values, a.head_dim);
  for (int i = out.first; i < out.last; ++i) {
    const auto find = [&](int position, const uint8_t*& keys, const uint8_t*& values) {
      const int slot = position % tokens;
      keys = static_cast<const uint8_t*>(a.cache.keys) + block_offset(a.batch, a.cache.key_stride, g.sequence, position) +
             key_piece_offset(a.cache.type.keys, a.head_dim, tokens, g.kv_head, slot);
      values = static_cast<const uint8_t*>(a.cache.values) + block_offset(a.batch, a.cache.value_stride, g.sequence, position) +
               piece_offset(tokens, g.kv_head, slot, value_row);
    };
    const int position = tile + i * kKeyTile;
    find(position, out.keys[i], out.values[i]);
    find(position + kTile < g.highest ? position + kTile : position, out.next_keys[i], out.next_values[i]);
  }
}

// Turns one row's scores into weights in place; returns what the earlier sums shrink by. Keys [begin, end) of the tile.
static float weigh_row(const AttentionArgs& a, float* scores, int begin, int end, float& max, float& sum) {
  F top = f_set1(kMinusInfinity), v[kTile / kLanes];
  const int first = begin / kLanes, last = (end + kLanes - 1) / kLanes;
  for (int i = first; i < last; ++i) {
    v[i] = f_load(scores + i * kLanes);
    if (a.softcap > 0) v[i] = f_mul(f_set1(a.softcap), v_tanh(f_div(v[i], f_set1(a.softcap))));
    v[i] = f_if_between(begin - i * kLanes, end - i * kLanes, v[i], f_set1(kMinusInfinity));
    top = f_max(top, v[i]);
  }
  const float tile_max = f_max_of(top), new_max = tile_max > max ? tile_max : max;
  const float shrink = exp_of(max - new_max);
  F total = f_zero();
  for (int i = first; i < last; ++i) {
    const F w = v_exp(f_sub(v[i], f_set1(new_max)));
    f_store(scores + i * kLanes, w);
    total = f_add(total, w);
  }
  max = new_max;
  sum = sum * shrink + f_sum(total);
  return shrink;
}
