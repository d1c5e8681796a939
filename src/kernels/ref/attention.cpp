// Cache layout here: rows of keys and of values (quant/cache_row.h) [block_tokens][G] in a block. Keys in groups: [G][groups].
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/context.h"
#include "kernels/ref/ref.h"
#include "quant/cache_row.h"

namespace sluice::kernels::ref {
namespace {

// Where the rows of `position` of sequence s are, of KV head g.
struct Rows { uint8_t *key, *value; };
Rows rows_at(const BatchView& b, const CacheView& c, int s, int position, int g, int kv_heads, int d) {
  const size_t block = size_t(b.block_ids[b.block_begin[s] + position / b.block_tokens]);
  const size_t row = size_t(position % b.block_tokens) * size_t(kv_heads) + size_t(g);
  return {static_cast<uint8_t*>(c.keys) + block * c.key_stride + row * cache_row_bytes(c.type.keys, d),
          static_cast<uint8_t*>(c.values) + block * c.value_stride + row * cache_row_bytes(c.type.values, d)};
}

// Where keys are in groups: a head's group that holds `position`, in the cache; and one that the step writes in, as rows of int8.
uint8_t* kept_group(const BatchView& b, const CacheView& c, int s, int position, int g, int d) {
  const size_t block = size_t(b.block_ids[b.block_begin[s] + position / b.block_tokens]), slot = size_t(position % b.block_tokens);
  return static_cast<uint8_t*>(c.keys) + block * c.key_stride + size_t(g) * cache_key_bytes(c.type.keys, d, b.block_tokens) + slot / kKeyGroup * closed_group_bytes(d);
}
uint8_t* step_rows(const BatchView& b, const CacheView& c, int s, int position, int g, int kv_heads, int d) {
  const size_t group = step_group(b, s) + size_t(position / kKeyGroup - b.positions[b.query_begin[s]] / kKeyGroup);
  return static_cast<uint8_t*>(c.step_keys) + (group * size_t(kv_heads) + size_t(g)) * open_group_bytes(d);
}
size_t row_of(int position, int d) { return size_t(position % kKeyGroup) * cache_row_bytes(CacheElement::kInt8, d); }

// One head's key as a query at `position` reads it.
void read_key(const AttentionArgs& a, int s, int j, int g, int position, float* key) {
  const int d = a.head_dim;
  if (!keys_in_groups(a.cache.type.keys)) return quant::decode_cache_row(a.cache.type.keys, rows_at(a.batch, a.cache, s, j, g, a.kv_heads, d).key, d, key);
  const bool own = j / kKeyGroup == position / kKeyGroup && position % kKeyGroup != kKeyGroup - 1;
  if (own) quant::decode_cache_row(CacheElement::kInt8, step_rows(a.batch, a.cache, s, j, g, a.kv_heads, d) + row_of(j, d), d, key);
  else quant::decode_grouped_key(kept_group(a.batch, a.cache, s, j, g, d), j % kKeyGroup, d, key);
}

template <class Args>
void rotate(const Args& a, float* x, int position) {
  const int half = a.rope_dims / 2;
  for (int i = 0; i < half; ++i) {
    const float c = a.cos_table[size_t(position) * half + i], s = a.sin_table[size_t(position) * half + i];
    float& lo = a.style == RopeStyle::kHalves ? x[i] : x[2 * i];
    float& hi = a.style == RopeStyle::kHalves ? x[i + half] : x[2 * i + 1];
    const float x0 = lo, x1 = hi;
    lo = x0 * c - x1 * s;
    hi = x0 * s + x1 * c;
  }
}

void rope_task(void* p, int t, int) noexcept {
  const RopeAppendArgs& a = *static_cast<const RopeAppendArgs*>(p);
  const int position = a.batch.positions[t], d = a.head_dim;
  for (int h = 0; h < a.q_heads; ++h) {
    float* q = a.q.floats() + size_t(t) * a.q_stride + size_t(h) * d;
    if (a.q_norm) rms_norm_row(q, a.q_norm, a.eps, d, q);
    rotate(a, q, position);
  }
  for (int g = 0; g < a.kv_heads; ++g) {
    float* k = a.k.floats() + size_t(t) * a.k_stride + size_t(g) * d;
    const float* v = a.v.floats() + size_t(t) * a.v_stride + size_t(g) * d;
    if (a.k_norm) rms_norm_row(k, a.k_norm, a.eps, d, k);
    if (a.key_offset && !is_float(a.cache.type.keys))
      for (int i = 0; i < d; ++i) k[i] -= a.key_offset[size_t(g) * d + i];
    rotate(a, k, position);
    if (is_mixed(a.cache.type.keys)) quant::mix_dims(k, d);
    const int s = a.batch.sequence_of[t];
    const Rows rows = rows_at(a.batch, a.cache, s, position, g, a.kv_heads, d);
    quant::encode_cache_row(a.cache.type.values, v, d, rows.value);
    if (!keys_in_groups(a.cache.type.keys)) quant::encode_cache_row(a.cache.type.keys, k, d, rows.key);
    else quant::encode_cache_row(CacheElement::kInt8, k, d, step_rows(a.batch, a.cache, s, position, g, a.kv_heads, d) + row_of(position, d));
  }
}

// The groups that one sequence's tokens are in, of one head: earlier rows of the first come from the cache, what is full is closed, and an
// open group goes to the cache whole, with zeros for who is not there yet, so that its bytes too depend on its tokens alone.
void group_task(void* p, int index, int) noexcept {
  const RopeAppendArgs& a = *static_cast<const RopeAppendArgs*>(p);
  const BatchView& b = a.batch;
  const int s = index / a.kv_heads, g = index % a.kv_heads, d = a.head_dim;
  if (b.query_begin[s] == b.query_begin[s + 1]) return;
  const int begin = b.positions[b.query_begin[s]], end = b.positions[b.query_begin[s + 1] - 1] + 1;
  for (int from = begin / kKeyGroup * kKeyGroup; from < end; from += kKeyGroup) {
    uint8_t *kept = kept_group(b, a.cache, s, from, g, d), *rows = step_rows(b, a.cache, s, from, g, a.kv_heads, d);
    if (from < begin) std::memcpy(rows, kept, row_of(begin, d));
    if (from + kKeyGroup <= end) {
      quant::close_key_group(rows, d, kept);
      std::memset(kept + closed_group_bytes(d), 0, open_group_bytes(d) - closed_group_bytes(d));  // where rows may have been
      continue;
    }
    std::memset(rows + row_of(end, d), 0, open_group_bytes(d) - row_of(end, d));
    std::memcpy(kept, rows, open_group_bytes(d));
  }
}

// One query head of one token: softmax by running maximum, one key at a time.
void attention_task(void* p, int index, int) noexcept {
  const AttentionArgs& a = *static_cast<const AttentionArgs*>(p);
  const int t = index / a.q_heads, h = index % a.q_heads, d = a.head_dim;
  const int g = h / (a.q_heads / a.kv_heads), position = a.batch.positions[t], s = a.batch.sequence_of[t];
  const float* q = a.q.floats() + size_t(t) * a.q_stride + size_t(h) * d;
  float mixed[kMaxHeadDim], offset[kMaxHeadDim];
  std::copy(q, q + d, mixed);
  if (is_mixed(a.cache.type.keys)) quant::mix_dims(mixed, d);
  const bool has_offset = a.key_offset && !is_float(a.cache.type.keys);
  double sum = 0, max = -std::numeric_limits<double>::infinity(), acc[kMaxHeadDim] = {};
  for (int j = a.window > 0 ? std::max(0, position - a.window + 1) : 0; j <= position; ++j) {
    float row[kMaxHeadDim];
    read_key(a, s, j, g, position, row);
    double score = 0;
    for (int i = 0; i < d; ++i) score += double(mixed[i]) * row[i];
    if (has_offset) {
      std::copy(a.key_offset + size_t(g) * d, a.key_offset + size_t(g + 1) * d, offset);
      rotate(a, offset, j);
      for (int i = 0; i < d; ++i) score += double(q[i]) * offset[i];
    }
    score *= a.scale;
    if (a.softcap > 0) score = a.softcap * std::tanh(score / a.softcap);
    if (score > max) {
      const double shrink = std::exp(max - score);
      sum *= shrink;
      for (int i = 0; i < d; ++i) acc[i] *= shrink;
      max = score;
    }
    const double weight = std::exp(score - max);
    sum += weight;
    quant::decode_cache_row(a.cache.type.values, rows_at(a.batch, a.cache, s, j, g, a.kv_heads, d).value, d, row);
    for (int i = 0; i < d; ++i) acc[i] += weight * row[i];
  }
  float* out = a.out.floats() + size_t(t) * a.out_stride + size_t(h) * d;
  for (int i = 0; i < d; ++i) out[i] = float(acc[i] / sum);
}

}  // namespace

void rope_append(Context* c, const RopeAppendArgs& a) noexcept {
  run_tasks(c, a.batch.num_tokens, rope_task, const_cast<RopeAppendArgs*>(&a));
  if (keys_in_groups(a.cache.type.keys)) run_tasks(c, a.batch.num_sequences * a.kv_heads, group_task, const_cast<RopeAppendArgs*>(&a));
}

void attention(Context* c, const AttentionArgs& a) noexcept {
  if (a.append) rope_append(c, *a.append);
  run_tasks(c, a.batch.num_tokens * a.q_heads, attention_task, const_cast<AttentionArgs*>(&a));
}

}  // namespace sluice::kernels::ref
