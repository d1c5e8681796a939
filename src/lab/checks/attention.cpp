// rope_append and attention against double precision, and the bitwise contract: a token's result does not depend on the chunk
// it came in, nor on the threads.
#include <bit>
#include <limits>
#include <numeric>

#include "lab/kernel_check.h"
#include "lab/on_backend.h"
#include "quant/cache_row.h"

namespace sluice::lab {
namespace {

struct AttentionCase {
  CacheType type;
  int q_heads, kv_heads, head_dim, rope_dims, block_tokens, window;
  float softcap;
  RopeStyle style;
  bool qk_norm;
  std::vector<int> lengths;  // tokens of each sequence
  bool offset = false;       // keys have a large bias, and are kept without
};

constexpr float kEps = 1e-6f;

// Inputs of all tokens of all sequences, and the block table.
struct Data {
  const AttentionCase& c;
  DType activations;
  int max_len = 0, blocks = 0;
  std::vector<std::vector<float>> q, k, v;  // [sequence]: [T, heads * D]
  std::vector<std::vector<int32_t>> table;  // [sequence]: blocks, shuffled
  std::vector<float> q_norm, k_norm, cos, sin, offset;

  // activations: what queries, keys and values are given in, and the results wanted in.
  explicit Data(const AttentionCase& c, DType activations = DType::kF32, uint64_t seed = 11) : c(c), activations(activations) {
    Rng rng(seed);
    const auto floats = [&](int n, int heads) {
      return from_type(activations, as_type(activations, random_floats(rng, size_t(n) * heads * c.head_dim)));
    };
    Rng other(99);
    if (c.offset) offset = random_floats(other, size_t(c.kv_heads) * c.head_dim, 5);
    for (int n : c.lengths) {
      q.push_back(floats(n, c.q_heads));
      k.push_back(floats(n, c.kv_heads));
      for (size_t i = 0; c.offset && i < k.back().size(); ++i) k.back()[i] += offset[i % offset.size()];
      v.push_back(floats(n, c.kv_heads));
      table.emplace_back();
      max_len = std::max(max_len, n);
      for (int i = 0; i < n; i += c.block_tokens) table.back().push_back(blocks++);
    }
    for (auto& t : table)  // block ids of one sequence are not in order, nor near each other
      for (int32_t& id : t) id = blocks - 1 - id;
    q_norm = random_floats(rng, size_t(c.head_dim));
    k_norm = random_floats(rng, size_t(c.head_dim));
    const int half = c.rope_dims / 2;
    for (int p = 0; p < max_len; ++p)
      for (int i = 0; i < half; ++i) {
        const double angle = p * std::pow(10000.0, -2.0 * i / c.rope_dims);
        cos.push_back(float(std::cos(angle)));
        sin.push_back(float(std::sin(angle)));
      }
  }
};

// A row as the cache gives it back.
std::vector<double> kept(CacheElement e, const std::vector<double>& x) {
  const int dim = int(x.size());
  std::vector<float> row(x.begin(), x.end());
  std::vector<uint8_t> bytes(cache_row_bytes(e, dim));
  quant::encode_cache_row(e, row.data(), dim, bytes.data());
  quant::decode_cache_row(e, bytes.data(), dim, row.data());
  return {row.begin(), row.end()};
}

// 16 rows of keys as the cache gives them back when their group is closed.
void close_group(std::vector<std::vector<double>*> rows) {
  const int dim = int(rows[0]->size());
  const size_t row_bytes = cache_row_bytes(CacheElement::kInt8, dim);
  std::vector<uint8_t> bytes(kKeyGroup * row_bytes), group(closed_group_bytes(dim));
  std::vector<float> x(static_cast<size_t>(dim));
  for (size_t t = 0; t < kKeyGroup; ++t) {
    x.assign(rows[t]->begin(), rows[t]->end());
    quant::encode_cache_row(CacheElement::kInt8, x.data(), dim, &bytes[t * row_bytes]);
  }
  quant::close_key_group(bytes.data(), dim, group.data());
  for (int t = 0; t < kKeyGroup; ++t) {
    quant::decode_grouped_key(group.data(), t, dim, x.data());
    rows[size_t(t)]->assign(x.begin(), x.end());
  }
}

// Sylvester's matrix, element by element: -1 to the number of bits that both indices have.
std::vector<double> mixed(const std::vector<double>& x) {
  const size_t dim = x.size(), n = dim & (~dim + 1);
  std::vector<double> y(dim);
  for (size_t i = 0; i < dim; ++i)
    for (size_t j = i / n * n; j < i / n * n + n; ++j) y[i] += x[j] * (std::popcount(i % n & j % n) % 2 ? -1 : 1) / std::sqrt(double(n));
  return y;
}

// Norm and rotation of one head.
std::vector<double> prepare(const Data& d, const float* x, const std::vector<float>& weight, int position) {
  const AttentionCase& c = d.c;
  std::vector<double> y(x, x + c.head_dim);
  if (c.qk_norm) {
    double square = 0;
    for (double e : y) square += e * e;
    for (int i = 0; i < c.head_dim; ++i) y[i] *= weight[i] / std::sqrt(square / c.head_dim + kEps);
  }
  const int half = c.rope_dims / 2;
  for (int i = 0; i < half; ++i) {
    const int a = c.style == RopeStyle::kHalves ? i : 2 * i, b = c.style == RopeStyle::kHalves ? i + half : 2 * i + 1;
    const double co = d.cos[size_t(position) * half + i], si = d.sin[size_t(position) * half + i], x0 = y[a], x1 = y[b];
    y[a] = x0 * co - x1 * si;
    y[b] = x0 * si + x1 * co;
  }
  return y;
}

// Attention of sequence s in double precision, over keys and values rounded as the cache rounds them.
std::vector<double> truth(const Data& d, int s, float scale) {
  const AttentionCase& c = d.c;
  const int n = c.lengths[s], dim = c.head_dim, group = c.q_heads / c.kv_heads;
  std::vector<double> out(size_t(n) * c.q_heads * dim);
  const bool groups = keys_in_groups(c.type.keys);
  std::vector<std::vector<double>> keys, values, offsets;
  for (int j = 0; j < n; ++j)
    for (int g = 0; g < c.kv_heads; ++g) {
      const float* v = d.v[s].data() + (size_t(j) * c.kv_heads + g) * dim;
      values.push_back(kept(c.type.values, std::vector<double>(v, v + dim)));
      std::vector<float> k(d.k[s].data() + (size_t(j) * c.kv_heads + g) * dim, d.k[s].data() + (size_t(j) * c.kv_heads + g + 1) * dim);
      const bool apart = c.offset && !is_float(c.type.keys);
      for (size_t i = 0; apart && i < k.size(); ++i) k[i] -= d.offset[size_t(g) * dim + i];
      keys.push_back(prepare(d, k.data(), d.k_norm, j));
      if (is_mixed(c.type.keys)) keys.back() = mixed(keys.back());
      offsets.emplace_back(size_t(dim), 0.0);
      if (apart) offsets.back() = prepare(d, d.offset.data() + size_t(g) * dim, d.k_norm, j);
      if (is_mixed(c.type.keys)) offsets.back() = mixed(offsets.back());
    }
  std::vector<std::vector<double>> closed = keys;
  for (size_t first = 0; groups && first + kKeyGroup <= size_t(n); first += kKeyGroup)
    for (size_t g = 0; g < size_t(c.kv_heads); ++g) {
      std::vector<std::vector<double>*> rows;
      for (size_t j = first; j < first + kKeyGroup; ++j) rows.push_back(&closed[j * size_t(c.kv_heads) + g]);
      close_group(rows);
    }
  for (size_t i = 0; i < keys.size(); ++i) {
    keys[i] = kept(groups ? CacheElement::kInt8 : c.type.keys, keys[i]);
    for (size_t e = 0; e < keys[i].size(); ++e) keys[i][e] += offsets[i][e], closed[i][e] += offsets[i][e];
  }
  for (int t = 0; t < n; ++t)
    for (int h = 0; h < c.q_heads; ++h) {
      std::vector<double> q = prepare(d, d.q[s].data() + (size_t(t) * c.q_heads + h) * dim, d.q_norm, t);
      if (is_mixed(c.type.keys)) q = mixed(q);
      const int first = c.window > 0 ? std::max(0, t - c.window + 1) : 0, g = h / group;
      std::vector<double> w;
      double max = -1e300, sum = 0;
      for (int j = first; j <= t; ++j) {
        double score = 0;
        const bool as_closed = groups && (j / kKeyGroup < t / kKeyGroup || t % kKeyGroup == kKeyGroup - 1);
        const std::vector<double>& key = (as_closed ? closed : keys)[size_t(j) * c.kv_heads + g];
        for (int i = 0; i < dim; ++i) score += q[i] * key[i];
        score *= scale;
        if (c.softcap > 0) score = c.softcap * std::tanh(score / c.softcap);
        w.push_back(score);
        max = std::max(max, score);
      }
      for (double& x : w) sum += x = std::exp(x - max);
      for (int j = first; j <= t; ++j)
        for (int i = 0; i < dim; ++i)
          out[(size_t(t) * c.q_heads + h) * dim + i] += w[size_t(j - first)] / sum * values[size_t(j) * c.kv_heads + g][i];
    }
  return out;
}

// One backend's cache and outputs; step() appends and attends tokens [begin, end) of each sequence.
struct Runner {
  const KernelTable& t;
  const Data& d;
  ContextPtr context;
  size_t key_bytes, value_bytes;    // of a block
  OnBackend<uint8_t> keys, values, step_keys;  // at first NaN in all types of numbers and scales: unused slots must not matter
  OnBackend<float> cos, sin, q_norm, k_norm, offset;
  std::vector<std::vector<float>> out;
  bool together = false;            // rotation and append are asked of attention

  Runner(const KernelTable& t, const Data& d, int threads, bool deterministic = true)
      : t(t), d(d), context(make_context(t, threads, 1024, 64, deterministic)),
        key_bytes(size_t(d.c.kv_heads) * cache_key_bytes(d.c.type.keys, d.c.head_dim, d.c.block_tokens)),
        value_bytes(size_t(d.c.kv_heads) * cache_value_bytes(d.c.type.values, d.c.head_dim, d.c.block_tokens)),
        keys(t, std::vector<uint8_t>(key_bytes * d.blocks, 0xFF)), values(t, std::vector<uint8_t>(value_bytes * d.blocks, 0xFF)),
        step_keys(t, std::vector<uint8_t>(step_key_bytes(d.c), 0xFF)),
        cos(t, d.cos), sin(t, d.sin), q_norm(t, d.q_norm), k_norm(t, d.k_norm), offset(t, d.offset) {
    const AttentionCase& c = d.c;
    for (int n : c.lengths) out.emplace_back(size_t(n) * c.q_heads * c.head_dim);
  }

  static size_t step_key_bytes(const AttentionCase& c) {
    if (!keys_in_groups(c.type.keys)) return 0;
    return step_groups(std::accumulate(c.lengths.begin(), c.lengths.end(), 0), int(c.lengths.size())) * size_t(c.kv_heads) * open_group_bytes(c.head_dim);
  }

  // given: what the tokens are; other data than the runner's are drafts, say, that will be written over.
  void step(const std::vector<int>& begin, const std::vector<int>& end, const Data& given) {
    const AttentionCase& c = d.c;
    const int hd = c.q_heads * c.head_dim, gd = c.kv_heads * c.head_dim;
    std::vector<int32_t> positions, sequence_of, query_begin{0}, kv_len, block_begin{0}, block_ids;
    std::vector<float> q, k, v;
    for (size_t s = 0; s < c.lengths.size(); ++s) {
      const auto add = [&](std::vector<float>& to, const std::vector<float>& from, int width) {
        to.insert(to.end(), from.begin() + size_t(begin[s]) * width, from.begin() + size_t(end[s]) * width);
      };
      add(q, given.q[s], hd);
      add(k, given.k[s], gd);
      add(v, given.v[s], gd);
      for (int p = begin[s]; p < end[s]; ++p) {
        positions.push_back(p);
        sequence_of.push_back(int32_t(s));
      }
      query_begin.push_back(int32_t(positions.size()));
      kv_len.push_back(end[s]);
      // Only the blocks that exist by now.
      const int used = (end[s] + c.block_tokens - 1) / c.block_tokens;
      block_ids.insert(block_ids.end(), d.table[s].begin(), d.table[s].begin() + used);
      block_begin.push_back(int32_t(block_ids.size()));
    }
    const OnBackend<int32_t> arrays[] = {{t, positions}, {t, sequence_of}, {t, query_begin}, {t, kv_len}, {t, block_begin}, {t, block_ids}};
    const DType type = d.activations;
    const OnBackend<uint8_t> queries(t, as_type(type, q)), new_keys(t, as_type(type, k)), new_values(t, as_type(type, v)),
        y(t, as_type(type, std::vector<float>(positions.size() * hd)));
    BatchView batch{int(positions.size()), int(c.lengths.size()), arrays[0].data(), arrays[1].data(), arrays[2].data(),
                          arrays[3].data(), arrays[4].data(), arrays[5].data(), c.block_tokens};
    batch.host_query_begin = query_begin.data(), batch.host_kv_len = kv_len.data();
    const CacheView cache{c.type, keys.data(), values.data(), key_bytes, value_bytes, step_keys.data()};
    RopeAppendArgs r;
    r.batch = batch;
    r.cache = cache;
    r.q_heads = c.q_heads, r.kv_heads = c.kv_heads, r.head_dim = c.head_dim, r.rope_dims = c.rope_dims;
    r.q = {queries.data(), type}, r.k = {new_keys.data(), type}, r.v = {new_values.data(), type};
    r.q_stride = hd, r.k_stride = r.v_stride = gd;
    if (c.qk_norm) r.q_norm = q_norm.data(), r.k_norm = k_norm.data();
    r.eps = kEps;
    r.style = c.style;
    r.cos_table = cos.data(), r.sin_table = sin.data();
    if (c.offset) r.key_offset = offset.data();
    if (!together) t.rope_append(context.get(), r);
    AttentionArgs a;
    if (together) a.append = &r;
    a.batch = batch;
    a.cache = cache;
    a.q_heads = c.q_heads, a.kv_heads = c.kv_heads, a.head_dim = c.head_dim;
    a.q = {queries.data(), type}, a.q_stride = hd;
    a.scale = scale();
    a.window = c.window, a.softcap = c.softcap;
    a.key_offset = r.key_offset;
    a.rope_dims = c.rope_dims, a.style = c.style;
    a.cos_table = cos.data(), a.sin_table = sin.data();
    a.out = {y.data(), type}, a.out_stride = hd;
    t.attention(context.get(), a);
    const std::vector<float> got = from_type(type, y.read(context.get()));
    queries.read(context.get());  // for what is around them
    for (size_t s = 0; s < c.lengths.size(); ++s)
      std::memcpy(out[s].data() + size_t(begin[s]) * hd, got.data() + size_t(query_begin[s]) * hd,
                  size_t(end[s] - begin[s]) * hd * sizeof(float));
  }

  // All tokens, at most `chunk` of each sequence a step; before each step, other tokens in its place and beyond, none that closes a group.
  void run(int chunk, const Data* drafts = nullptr) {
    std::vector<int> begin(d.c.lengths.size(), 0);
    for (bool more = true; more;) {
      std::vector<int> end;
      more = false;
      for (size_t s = 0; s < begin.size(); ++s) {
        end.push_back(std::min(d.c.lengths[s], begin[s] + chunk));
        more |= end[s] < d.c.lengths[s];
      }
      std::vector<int> beyond;
      for (size_t s = 0; s < begin.size(); ++s) {
        beyond.push_back(std::min(d.c.lengths[s], end[s] + 5));
        if (keys_in_groups(d.c.type.keys)) beyond.back() = std::min(beyond.back(), begin[s] / kKeyGroup * kKeyGroup + kKeyGroup - 1);
      }
      if (drafts && beyond != begin) step(begin, beyond, *drafts);  // a step has tokens
      step(begin, end, d);
      begin = end;
    }
  }

  float scale() const { return 1.0f / std::sqrt(float(d.c.head_dim)); }
};

constexpr CacheType both(CacheElement e) { return {e, e}; }

std::vector<AttentionCase> shapes() {
  constexpr auto kInter = RopeStyle::kInterleaved, kHalves = RopeStyle::kHalves;
  return {
      {both(CacheElement::kF16), 9, 3, 64, 64, 16, 0, 0, kInter, false, {37}},
      {both(CacheElement::kF32), 4, 4, 32, 32, 16, 0, 0, kHalves, true, {1, 16, 17, 100}},
      {both(CacheElement::kBF16), 8, 1, 80, 32, 32, 0, 0, kHalves, false, {65, 3}},
      {both(CacheElement::kF16), 6, 2, 96, 96, 16, 20, 0, kInter, true, {150, 64}},
      {both(CacheElement::kF16), 14, 2, 128, 128, 64, 0, 30, kHalves, false, {70}},
      {both(CacheElement::kF16), 4, 1, 256, 256, 16, 100, 50, kHalves, true, {230}},
      {both(CacheElement::kF32), 3, 1, 40, 20, 16, 1, 0, kInter, false, {33}},
      {both(CacheElement::kF16), 2, 1, 64, 64, 16, 0, 0, kHalves, false, {1300}},
      {both(CacheElement::kBF16), 2, 2, 64, 64, 128, 600, 0, kHalves, false, {1100, 5}},
      // Many sequences of unlike lengths; groups that fill no tile, and more than one; each head size in the other half type.
      {both(CacheElement::kF16), 8, 2, 128, 128, 16, 0, 0, kHalves, false, {1, 700, 16, 33, 300, 64, 2, 129}},
      {both(CacheElement::kBF16), 12, 1, 128, 128, 16, 40, 0, kHalves, false, {5, 260, 90}},
      {both(CacheElement::kF16), 20, 1, 80, 80, 16, 0, 20, kHalves, false, {140, 7}},
      {both(CacheElement::kBF16), 3, 3, 96, 96, 16, 0, 0, kHalves, false, {300, 1, 20}},
      {both(CacheElement::kBF16), 2, 1, 256, 256, 16, 0, 0, kHalves, false, {270, 130}},
      // Each quantised type: long and short, heads that are no power of two or no whole vector, windows, more rows than a tile has.
      {both(CacheElement::kFp8), 3, 1, 64, 64, 16, 0, 0, kInter, false, {140, 37}},
      {both(CacheElement::kFp8), 8, 1, 40, 20, 32, 20, 0, kHalves, false, {65, 3}},
      {both(CacheElement::kFp8), 6, 2, 80, 80, 16, 0, 0, kHalves, true, {150, 64}},
      {both(CacheElement::kFp8), 14, 2, 128, 128, 64, 0, 30, kHalves, false, {70}},
      {both(CacheElement::kFp8), 4, 1, 256, 256, 16, 100, 50, kHalves, true, {230}},
      {both(CacheElement::kInt8), 3, 1, 64, 64, 16, 0, 0, kInter, false, {520, 37}},
      {both(CacheElement::kInt8), 8, 1, 40, 20, 32, 20, 0, kHalves, false, {65, 3}},
      {both(CacheElement::kInt8), 6, 2, 80, 80, 16, 0, 0, kHalves, true, {150, 64}},
      {both(CacheElement::kInt8), 14, 2, 128, 128, 64, 0, 30, kHalves, false, {70}},
      {both(CacheElement::kInt8), 4, 1, 256, 256, 16, 100, 50, kHalves, true, {230}},
      {both(CacheElement::kInt4), 3, 1, 64, 64, 16, 0, 0, kInter, false, {140, 37}},
      {both(CacheElement::kInt4), 8, 1, 40, 20, 32, 20, 0, kHalves, false, {65, 3}},
      {both(CacheElement::kInt4), 6, 2, 80, 80, 16, 0, 0, kHalves, true, {150, 64}},
      {both(CacheElement::kInt4), 4, 1, 256, 256, 16, 100, 50, kHalves, true, {230}},
      {both(CacheElement::kInt4), 2, 2, 64, 64, 64, 0, 0, kHalves, false, {15, 530, 16, 1}},  // splits; a group closed, all but closed
      {both(CacheElement::kFp8), 14, 2, 64, 64, 16, 0, 0, kHalves, false, {150, 3}, true},
      {both(CacheElement::kInt8), 14, 2, 64, 64, 16, 0, 0, kHalves, false, {150, 3}, true},
      {both(CacheElement::kInt4), 4, 2, 80, 40, 16, 70, 0, kInter, false, {100}, true},
      {both(CacheElement::kF16), 4, 2, 64, 64, 16, 0, 0, kHalves, false, {20}, true},
      {{CacheElement::kInt8, CacheElement::kFp8}, 6, 2, 96, 96, 16, 0, 0, kHalves, false, {90, 33}},
      {{CacheElement::kInt8, CacheElement::kInt4}, 9, 3, 64, 64, 16, 0, 0, kHalves, false, {130}},
      {{CacheElement::kF16, CacheElement::kInt8}, 4, 2, 128, 128, 16, 0, 0, kHalves, false, {100}},
      {{CacheElement::kFp8, CacheElement::kF32}, 3, 1, 64, 64, 16, 0, 0, kHalves, false, {50}},
      // More prompts at once than a host lists for a device, which finds them by itself; among them sequences of few tokens.
      {both(CacheElement::kF16), 4, 2, 64, 64, 16, 0, 0, kHalves, false, {40, 3, 33, 70, 17, 18, 19, 20, 1, 21, 22, 23, 24, 25, 26, 27, 16, 28, 29, 66, 31, 32}},
      {both(CacheElement::kFp8), 4, 2, 64, 64, 16, 24, 0, kHalves, false, {40, 3, 33, 70, 17, 18, 19, 20, 1, 21, 22, 23, 24, 25, 26, 27, 16, 28, 29, 66, 31, 32}},
  };
}

std::string describe(const AttentionCase& c) {
  return cache_type_name(c.type) + " D=" + std::to_string(c.head_dim) + " heads=" + std::to_string(c.q_heads) + "/" +
         std::to_string(c.kv_heads) + " window=" + std::to_string(c.window) + " length=" + std::to_string(c.lengths[0]) + (c.offset ? " offset" : "");
}

// Values are near 1. A rotated key in float may round to the other neighbour in the cache's type: one part in 2^11 (f16) or
// 2^8 (bf16) of a key's element, which moves a score by little and an output by less. Half products round queries and weights
// to the cache's type too: as much again for scores, and a part in 2^11 or 2^8 of each weight, which is less than that of the
// output.
double allowed(DType type, bool half_products) {
  return type == DType::kF32 ? 2e-5 : (half_products ? 2 : 1) * (type == DType::kF16 ? 2e-3 : 1.5e-2);
}
// Of quantised rows a key's element may fall to its other neighbour too: for fp8 a part in 16 of it, for int8 a part in 127 of the
// row's largest and for int4 a 15th of its group's range, one element in some thousands. Products of fp8 may round queries and
// weights to bfloat16.
double allowed(CacheElement e, bool half_products) {
  switch (e) {
    case CacheElement::kF32: return allowed(DType::kF32, half_products);
    case CacheElement::kF16: return allowed(DType::kF16, half_products);
    case CacheElement::kBF16: return allowed(DType::kBF16, half_products);
    case CacheElement::kFp8: return 3e-2;
    case CacheElement::kInt8: return 5e-3;
    case CacheElement::kInt4: return 5e-2;
  }
  return 0;
}
double allowed(CacheType type, bool half_products) {
  return std::max(allowed(type.keys, half_products), allowed(type.values, half_products));
}

Verdict agrees(const KernelTable& t, const AttentionCase& c) {
  if (!t.cache_type(c.type)) return {};
  const Data d(c);
  std::vector<std::vector<double>> want;
  for (size_t s = 0; s < c.lengths.size(); ++s) want.push_back(truth(d, int(s), 1 / std::sqrt(float(c.head_dim))));
  Verdict v;
  for (const auto& [deterministic, chunk] : {std::pair{true, 200}, {false, 200}, {false, 5}, {false, 1}}) {
    if (!deterministic && t.batch_invariant) continue;  // nothing else to see
    for (bool together : {false, true}) {
      Runner r(t, d, 2, deterministic);
      r.together = together;
      r.run(chunk);
      const double most = allowed(c.type, t.half_products && !deterministic);
      for (size_t s = 0; s < want.size(); ++s)
        for (size_t i = 0; i < want[s].size(); ++i) keep_worst(v.error, std::abs(r.out[s][i] - want[s][i]) / most);
    }
  }
  return v;
}

// Queries, keys and values in halves, as a backend with `activations` may have them: queries are rounded once more when they are
// rotated, and the result when it is stored.
Verdict halves_agree(const KernelTable& t, const AttentionCase& c) {
  Verdict v;
  for (DType type : {DType::kF16, DType::kBF16}) {
    // Where keys have a bias, models keep them float32: halves of so large numbers say little.
    if (!t.activations || !t.cache_type(c.type) || (c.offset && !is_float(c.type.keys))) continue;
    const Data d(c, type);
    const double most = allowed(c.type, true) + allowed(type, true);
    for (const auto& [chunk, together] : {std::pair{200, false}, {5, true}, {1, false}, {1, true}}) {
      Runner r(t, d, 2, false);
      r.together = together;
      r.run(chunk);
      for (size_t s = 0; s < c.lengths.size(); ++s) {
        const std::vector<double> want = truth(d, int(s), r.scale());
        for (size_t i = 0; i < want.size(); ++i) keep_worst(v.error, std::abs(r.out[s][i] - want[i]) / most);
      }
    }
  }
  return v;
}

Verdict chunks_and_threads(const KernelTable& t, const AttentionCase& c) {
  if (!t.cache_type(c.type)) return {};
  const Data d(c);
  const bool slow = &t == reference_kernels() && c.lengths[0] > 500;
  Runner want(t, d, 1);
  want.run(1024);
  const std::vector<uint8_t> want_keys = want.keys.read(want.context.get()), want_values = want.values.read(want.context.get());
  const auto same = [&](Runner& r) {
    for (size_t s = 0; s < c.lengths.size(); ++s)
      if (bits_differ(r.out[s], want.out[s]) != 0) return false;
    return r.keys.read(r.context.get()) == want_keys && r.values.read(r.context.get()) == want_values;
  };
  for (int threads : {1, 2, 3})
    for (int chunk : {1, 3, 7, 33, 512}) {
      if (!t.host_memory && threads != 2) continue;  // no kernel runs on the host's threads
      if ((slow && (threads != 2 || chunk < 7)) || (chunk == 1 && threads == 3)) continue;
      Runner r(t, d, threads);
      r.run(chunk);
      if (!same(r)) return {0, "other bits with chunks of " + std::to_string(chunk) + " and " + std::to_string(threads) + " threads"};
    }
  const Data others(c, DType::kF32, 12);
  for (const auto& [chunk, together] : {std::pair{7, false}, {7, true}, {1, true}}) {
    if (chunk == 1 && !keys_in_groups(c.type.keys)) continue;
    Runner r(t, d, 2);
    r.together = together;
    r.run(chunk, &others);
    if (!same(r)) return {0, std::string("other bits after drafts that were written over") + (together ? ", appended by attention" : "")};
  }
  return {};
}

// A poisoned token of the same chunk is seen by later tokens only.
Verdict no_later_values(const KernelTable& t, CacheElement e, int window) {
  const AttentionCase c{both(e), 4, 2, 64, 64, 16, window, 0, RopeStyle::kHalves, false, {190}};
  const bool deterministic = e == CacheElement::kF32;
  if (!t.cache_type(c.type)) return {};
  const Data clean(c);
  Data poisoned(c);
  for (int i = 0; i < 2 * 64; ++i) poisoned.v[0][size_t(170) * 2 * 64 + i] = std::numeric_limits<float>::quiet_NaN();
  Runner a(t, clean, 2, deterministic), b(t, poisoned, 2, deterministic);
  a.run(190);
  b.run(190);
  if (std::memcmp(a.out[0].data(), b.out[0].data(), size_t(170) * 4 * 64 * sizeof(float)) != 0) return {0, "an earlier token saw it"};
  if (!std::isnan(b.out[0][size_t(170) * 4 * 64])) return {0, "the token itself did not"};
  return {};
}

// A device's scratch memory holds the keys and values of some prompts at a time; here are more.
Verdict many_prompts(const KernelTable& t) {
  const AttentionCase c{both(CacheElement::kFp8), 80, 80, 64, 64, 16, 0, 0, RopeStyle::kHalves, false, {250, 250, 250, 250}};
  if (t.host_memory || !t.cache_type(c.type)) return {};
  const Data d(c);
  Runner want(t, d, 1), got(t, d, 1, false);
  want.run(250);
  got.run(250);
  Verdict v;
  for (size_t s = 0; s < c.lengths.size(); ++s)
    for (size_t i = 0; i < want.out[s].size(); ++i)
      keep_worst(v.error, std::abs(double(got.out[s][i]) - want.out[s][i]) / allowed(c.type, t.half_products));
  return v;
}

Verdict large_values(const KernelTable& t) {
  const AttentionCase c{both(CacheElement::kF16), 1, 1, 32, 32, 16, 0, 0, RopeStyle::kHalves, false, {20}};
  Data d(c);
  for (float& v : d.v[0]) v *= 1e6f;
  Runner r(t, d, 1);
  r.run(20);
  for (float y : r.out[0])
    if (!(std::isfinite(y) && std::abs(y) <= 65504.0f)) return {0, "not finite"};
  return {};
}

std::vector<KernelCase> cases() {
  std::vector<KernelCase> out;
  for (const AttentionCase& c : shapes()) out.push_back({describe(c), [c](const KernelTable& t) { return agrees(t, c); }});
  for (const AttentionCase& c : shapes())
    out.push_back({"chunks and threads " + describe(c), [c](const KernelTable& t) { return chunks_and_threads(t, c); }});
  for (const AttentionCase& c : shapes()) out.push_back({"halves " + describe(c), [c](const KernelTable& t) { return halves_agree(t, c); }});
  for (CacheElement e : {CacheElement::kF32, CacheElement::kF16, CacheElement::kBF16, CacheElement::kFp8, CacheElement::kInt8})
    for (int window : {0, 40})
      out.push_back({"earlier tokens do not see later values " + std::string(cache_element_name(e)) + (window ? " window" : ""),
                     [e, window](const KernelTable& t) { return no_later_values(t, e, window); }});
  out.push_back({"many prompts of codes", many_prompts});
  out.push_back({"large values stay finite in half precision", large_values});
  return out;
}

// `sequences` of `length` cached tokens each, the last `tokens` of each asking.
SpeedRun prepare(const KernelTable& t, Context* context, CacheElement type, int sequences, int tokens, int length, int heads, int kv_heads, int dim) {
  const int block_tokens = keys_in_groups(type) ? 64 : 16;
  struct State {
    std::vector<OnBackend<uint8_t>> cache;
    std::vector<OnBackend<float>> floats;
    std::vector<OnBackend<int32_t>> arrays;
    std::vector<int32_t> query_begin, kv_len;
    AttentionArgs args;
  };
  if (!t.cache_type(both(type))) return {};
  auto s = std::make_shared<State>();
  const int blocks = (length + block_tokens - 1) / block_tokens;
  const size_t block_bytes[] = {size_t(kv_heads) * cache_key_bytes(type, dim, block_tokens), size_t(kv_heads) * cache_value_bytes(type, dim, block_tokens)};
  std::vector<int32_t> positions, sequence_of, query_begin{0}, kv_len, block_begin{0}, block_ids;
  for (int i = 0; i < sequences; ++i) {
    for (int k = 0; k < tokens; ++k) {
      positions.push_back(length - tokens + k);
      sequence_of.push_back(i);
    }
    query_begin.push_back(int32_t(positions.size()));
    kv_len.push_back(length);
    for (int b = 0; b < blocks; ++b) block_ids.push_back(i * blocks + blocks - 1 - b);
    block_begin.push_back(int32_t(block_ids.size()));
  }
  Rng rng(2);
  const size_t step_bytes = keys_in_groups(type) ? step_groups(int(positions.size()), sequences) * size_t(kv_heads) * open_group_bytes(dim) : 0;
  for (const size_t bytes : {block_bytes[0] * blocks * sequences, block_bytes[1] * blocks * sequences, step_bytes}) {
    std::vector<uint16_t> halves(bytes / 2);  // codes too may be anything, and scales any half that is finite
    for (uint16_t& h : halves) h = float_to_half(rng.normalish());
    s->cache.emplace_back(t, reinterpret_cast<const uint8_t*>(halves.data()), 2 * halves.size());
  }
  s->floats.emplace_back(t, random_floats(rng, positions.size() * size_t(heads * dim)));
  s->floats.emplace_back(t, std::vector<float>(positions.size() * size_t(heads * dim)));
  for (const auto* a : {&positions, &sequence_of, &query_begin, &kv_len, &block_begin, &block_ids}) s->arrays.emplace_back(t, *a);
  AttentionArgs& a = s->args;
  a.batch = {int(positions.size()), sequences, s->arrays[0].data(), s->arrays[1].data(), s->arrays[2].data(),
             s->arrays[3].data(), s->arrays[4].data(), s->arrays[5].data(), block_tokens};
  s->query_begin = query_begin, s->kv_len = kv_len;
  a.batch.host_query_begin = s->query_begin.data(), a.batch.host_kv_len = s->kv_len.data();
  a.cache = {both(type), s->cache[0].data(), s->cache[1].data(), block_bytes[0], block_bytes[1], s->cache[2].data()};
  a.q_heads = heads, a.kv_heads = kv_heads, a.head_dim = dim;
  a.q = s->floats[0].data(), a.q_stride = heads * dim;
  a.scale = 1 / std::sqrt(float(dim));
  a.out = s->floats[1].data(), a.out_stride = heads * dim;
  SpeedRun run;
  run.bytes = double(block_bytes[0] + block_bytes[1]) * blocks * sequences;
  for (int32_t p : positions) run.flops += 4.0 * (p + 1) * heads * dim;
  run.call = [s, &t, context] { t.attention(context, s->args); };
  return run;
}

std::vector<SpeedCase> speeds() {
  std::vector<SpeedCase> out;
  struct Shape { CacheElement type; int sequences, tokens, length, heads, kv_heads, dim; };
  constexpr auto kF16 = CacheElement::kF16;
  std::vector<Shape> shapes{{kF16, 1, 1, 512, 9, 3, 64}, {kF16, 4, 1, 7936, 9, 3, 64}, {kF16, 16, 1, 256, 9, 3, 64}, {kF16, 1, 512, 512, 9, 3, 64},
                            {kF16, 1, 512, 4096, 9, 3, 64}, {kF16, 4, 1, 7936, 12, 2, 128}, {kF16, 1, 512, 512, 4, 1, 256}};
  for (CacheElement e : {CacheElement::kFp8, CacheElement::kInt8, CacheElement::kInt4}) {
    shapes.push_back({e, 4, 1, 7936, 9, 3, 64});
    shapes.push_back({e, 1, 512, 4096, 9, 3, 64});
  }
  for (const Shape& x : shapes)
    out.push_back({(x.type == kF16 ? "" : std::string(cache_element_name(x.type)) + " ") + "S=" + std::to_string(x.sequences) + " T=" +
                       std::to_string(x.sequences * x.tokens) + " of " + std::to_string(x.length) + " heads " + std::to_string(x.heads) + "/" +
                       std::to_string(x.kv_heads) + " of " + std::to_string(x.dim),
                   false, [x](const KernelTable& t, Context* c) { return prepare(t, c, x.type, x.sequences, x.tokens, x.length, x.heads, x.kv_heads, x.dim); }});
  return out;
}

}  // namespace

extern const KernelCheck check_attention{
    "attention", "f32 cache 2e-5 (float sums), f16 2e-3, bf16 1.5e-2, fp8 3e-2, int8 5e-3, int4 5e-2 (a rotated key may round to its other neighbour; fp8's products may take bfloat16); chunks, threads and drafts written over: no bit, of results and cache",
    cases, speeds};

}  // namespace sluice::lab
