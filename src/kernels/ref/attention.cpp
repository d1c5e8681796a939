// Cache layout here: keys and values [block_tokens][G][D] in a block.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/half.h"
#include "kernels/context.h"
#include "kernels/ref/ref.h"

namespace sluice::kernels::ref {
namespace {

float load(DType type, const void* base, size_t i) {
  if (type == DType::kF32) return static_cast<const float*>(base)[i];
  const uint16_t h = static_cast<const uint16_t*>(base)[i];
  return type == DType::kF16 ? half_to_float(h) : bf16_to_float(h);
}

void store(DType type, void* base, size_t i, float v) {
  if (type == DType::kF32) {
    static_cast<float*>(base)[i] = v;
  } else if (type == DType::kF16) {  // clamped: an infinite key or value would spoil every later token
    static_cast<uint16_t*>(base)[i] = float_to_half(std::clamp(v, -65504.0f, 65504.0f));
  } else {
    static_cast<uint16_t*>(base)[i] = float_to_bf16(v);
  }
}

// Address of one layer's block that holds `position` of sequence s, and the token's slot in it.
size_t block_offset(const BatchView& b, const CacheView& c, int s, int position, int& slot) {
  const int32_t block = b.block_ids[b.block_begin[s] + position / b.block_tokens];
  slot = position % b.block_tokens;
  return size_t(block) * c.block_stride;
}

void rotate(const RopeAppendArgs& a, float* x, int position) {
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
  int slot;
  const size_t block = block_offset(a.batch, a.cache, a.batch.sequence_of[t], position, slot);
  void* keys = static_cast<char*>(a.cache.keys) + block;
  void* values = static_cast<char*>(a.cache.values) + block;
  for (int g = 0; g < a.kv_heads; ++g) {
    float* k = a.k.floats() + size_t(t) * a.k_stride + size_t(g) * d;
    const float* v = a.v.floats() + size_t(t) * a.v_stride + size_t(g) * d;
    if (a.k_norm) rms_norm_row(k, a.k_norm, a.eps, d, k);
    rotate(a, k, position);
    const size_t at = (size_t(slot) * a.kv_heads + g) * d;
    for (int i = 0; i < d; ++i) store(a.cache.dtype, keys, at + i, k[i]);
    for (int i = 0; i < d; ++i) store(a.cache.dtype, values, at + i, v[i]);
  }
}

// One query head of one token: softmax by running maximum, one key at a time.
void attention_task(void* p, int index, int) noexcept {
  const AttentionArgs& a = *static_cast<const AttentionArgs*>(p);
  const int t = index / a.q_heads, h = index % a.q_heads, d = a.head_dim;
  const int g = h / (a.q_heads / a.kv_heads), position = a.batch.positions[t], s = a.batch.sequence_of[t];
  const float* q = a.q.floats() + size_t(t) * a.q_stride + size_t(h) * d;
  double sum = 0, max = -std::numeric_limits<double>::infinity(), acc[kMaxHeadDim] = {};
  for (int j = a.window > 0 ? std::max(0, position - a.window + 1) : 0; j <= position; ++j) {
    int slot;
    const size_t block = block_offset(a.batch, a.cache, s, j, slot);
    const size_t at = (size_t(slot) * a.kv_heads + g) * d;
    const void* keys = static_cast<const char*>(a.cache.keys) + block;
    const void* values = static_cast<const char*>(a.cache.values) + block;
    double score = 0;
    for (int i = 0; i < d; ++i) score += double(q[i]) * load(a.cache.dtype, keys, at + i);
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
    for (int i = 0; i < d; ++i) acc[i] += weight * load(a.cache.dtype, values, at + i);
  }
  float* out = a.out.floats() + size_t(t) * a.out_stride + size_t(h) * d;
  for (int i = 0; i < d; ++i) out[i] = float(acc[i] / sum);
}

}  // namespace

void rope_append(Context* c, const RopeAppendArgs& a) noexcept {
  run_tasks(c, a.batch.num_tokens, rope_task, const_cast<RopeAppendArgs*>(&a));
}

void attention(Context* c, const AttentionArgs& a) noexcept {
  run_tasks(c, a.batch.num_tokens * a.q_heads, attention_task, const_cast<AttentionArgs*>(&a));
}

}  // namespace sluice::kernels::ref
