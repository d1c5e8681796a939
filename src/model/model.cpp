#include "model/model.h"

#include <cmath>
#include <set>
#include <thread>
#include <tuple>

#include "tensor/buffer.h"

namespace sluice::model {
namespace {

// Angles in double: a float's 24 bits are not enough for position * frequency at long contexts.
bool fill_rope(const kernels::KernelTable& kernels, kernels::BackendBuffer& cos_out, kernels::BackendBuffer& sin_out,
               int positions, int dims, double base, double scale, const std::vector<float>& factors, int threads) {
  const int half = dims / 2;
  const size_t bytes = size_t(positions) * size_t(half) * 4;
  cos_out = kernels::BackendBuffer(kernels, bytes);
  sin_out = kernels::BackendBuffer(kernels, bytes);
  if (!cos_out.ok() || !sin_out.ok()) return false;
  // Tables of the host are filled in place.
  Buffer staged_cos, staged_sin;
  if (!kernels.host_memory) staged_cos = Buffer(bytes), staged_sin = Buffer(bytes);
  float* cosines = kernels.host_memory ? cos_out.as<float>() : staged_cos.as<float>();
  float* sines = kernels.host_memory ? sin_out.as<float>() : staged_sin.as<float>();
  std::vector<double> frequency(static_cast<size_t>(half));
  for (int i = 0; i < half; ++i)
    frequency[size_t(i)] = std::pow(base, -2.0 * i / dims) * scale / (factors.empty() ? 1.0 : double(factors[size_t(i)]));
  const auto fill = [&](int begin, int end) {
    for (int p = begin; p < end; ++p)
      for (int i = 0; i < half; ++i) {
        const double angle = p * frequency[size_t(i)];
        cosines[size_t(p) * size_t(half) + size_t(i)] = float(std::cos(angle));
        sines[size_t(p) * size_t(half) + size_t(i)] = float(std::sin(angle));
      }
  };
  const auto share = [&](int t) { return int(int64_t(positions) * t / threads); };
  std::vector<std::thread> pool;
  for (int t = 1; t < threads; ++t) pool.emplace_back(fill, share(t), share(t + 1));
  fill(0, share(1));
  for (std::thread& t : pool) t.join();
  if (kernels.host_memory || bytes == 0) return true;
  return kernels.load(kernels.device, cos_out.data(), cosines, bytes) && kernels.load(kernels.device, sin_out.data(), sines, bytes);
}

size_t aligned(size_t floats) { return (floats + 15) / 16 * 16; }

}  // namespace

size_t rope_bytes(const ModelSpec& s, int max_context) {
  return size_t(max_context) * size_t(s.rope_dims / 2) * 2 * sizeof(float) * (s.local.empty() ? 1 : 2);
}

Activations::Activations(const kernels::KernelTable& kernels, const ModelSpec& s, int tokens, int max_logit_rows)
    : max_tokens(tokens), max_rows(max_logit_rows) {
  const size_t T = size_t(tokens), R = size_t(max_logit_rows);
  const size_t sizes[] = {aligned(T * size_t(s.dim)),
                          aligned(T * size_t((s.q_heads + 2 * s.kv_heads) * s.head_dim)),
                          aligned(T * size_t(s.q_heads * s.head_dim)),
                          aligned(T * 2 * size_t(s.ffn_dim)),
                          aligned(T * size_t(s.dim)),
                          aligned(R * size_t(s.dim)),
                          aligned(R * size_t(s.vocab))};
  size_t total = 0;
  for (size_t n : sizes) total += n;
  buffer_ = kernels::BackendBuffer(kernels, total * 4);
  float* p = buffer_.as<float>();
  float** const fields[] = {&x, &qkv, &attn, &ffn, &tmp, &rows, &logits};
  for (size_t i = 0; i < 7; ++i) {
    *fields[i] = p;
    p += sizes[i];
  }
}

Model::Model(ModelSpec spec, Weights weights, const kernels::KernelTable* kernels, int max_context, int threads)
    : spec_(std::move(spec)), weights_(std::move(weights)), kernels_(kernels) {
  ok_ = fill_rope(*kernels_, rope_.global_cos, rope_.global_sin, max_context, spec_.rope_dims, spec_.rope_base,
                  spec_.rope_scale, weights_.rope_factors, threads);
  if (!spec_.local.empty())
    ok_ = fill_rope(*kernels_, rope_.local_cos, rope_.local_sin, max_context, spec_.rope_dims, spec_.rope_base_local, 1.0, {}, threads) && ok_;
}

void Model::forward(kernels::Context* context, Activations& a, const int32_t* token_ids, const int32_t* sampled,
                    const kernels::BatchView& batch, std::span<const kernels::CacheView> caches) const {
  SLUICE_CHECK(batch.num_tokens <= a.max_tokens);
  const format::TensorEntry& table = *weights_.embedding;
  kernels::EmbedArgs embed;
  embed.num_tokens = batch.num_tokens;
  embed.ids = token_ids;
  embed.type = table.weight_format->type;
  embed.table = weights_.embedding_data;
  embed.row_bytes = quant::row_bytes(*table.weight_format, size_t(spec_.dim));
  embed.dim = spec_.dim;
  embed.scale = spec_.embed_scale;
  embed.y = a.x;
  embed.sampled = sampled;
  kernels_->embed(context, embed);
  for (int i = 0; i < spec_.num_layers; ++i) run_layer(context, a, i, batch, caches[size_t(i)]);
}

void Model::run_layer(kernels::Context* context, Activations& a, int layer, const kernels::BatchView& batch, const kernels::CacheView& cache,
                      const LinearTap* tap) const {
  attention_block(context, a, layer, batch, cache, tap);
  ffn_block(context, a, layer, batch.num_tokens, tap);
}

std::vector<int> Model::unlike_layers() const {
  std::vector<int> layers;
  std::set<std::tuple<bool, WeightType, WeightType, WeightType, WeightType, WeightType, WeightType, WeightType>> kinds;
  for (int i = 0; i < spec_.num_layers; ++i) {
    const LayerWeights& w = weights_.layers[size_t(i)];
    if (kinds.insert({spec_.is_local(i), w.q.type, w.k.type, w.v.type, w.o.type, w.gate.type, w.up.type, w.down.type}).second) layers.push_back(i);
  }
  return layers;
}

void Model::linear(kernels::Context* context, const kernels::LinearArgs& args, const LinearTap* tap) const {
  if (tap && !(*tap)(args)) return;
  kernels_->linear(context, args);
}

// Of what goes from some products to others: as all of them would have it, or float32.
DType Model::between(const kernels::Context* context, std::initializer_list<const kernels::PackedWeight*> weights, int num_tokens) const {
  DType type = DType::kF32;
  for (const kernels::PackedWeight* const* w = weights.begin(); w != weights.end(); ++w) {
    const DType wanted = kernels_->activations ? kernels_->activations(context, **w, num_tokens) : DType::kF32;
    if (w != weights.begin() && wanted != type) return DType::kF32;
    type = wanted;
  }
  return type;
}

void Model::attention_block(kernels::Context* context, Activations& a, int layer, const kernels::BatchView& batch,
                            const kernels::CacheView& cache, const LinearTap* tap) const {
  const LayerWeights& w = weights_.layers[size_t(layer)];
  const int q_dim = spec_.q_heads * spec_.head_dim, kv_dim = spec_.kv_heads * spec_.head_dim, stride = q_dim + 2 * kv_dim;
  const bool local = spec_.is_local(layer);
  const bool biased = w.q_bias || w.k_bias || w.v_bias;  // which only float32 takes
  const kernels::Array q(a.qkv, biased ? DType::kF32 : between(context, {&w.q, &w.k, &w.v}, batch.num_tokens)), k = q.from(size_t(q_dim)), v = k.from(size_t(kv_dim));
  const kernels::Array attended(a.attn, between(context, {&w.o}, batch.num_tokens));

  kernels::LinearArgs qkv;
  qkv.num_tokens = batch.num_tokens;
  qkv.x = a.x;
  qkv.x_stride = spec_.dim;
  qkv.prologue = kernels::Prologue::kRmsNorm;
  qkv.norm_weight = w.attn_norm;
  qkv.eps = spec_.norm_eps;
  qkv.num_outputs = 3;
  qkv.out[0] = {w.q, w.q_bias, q, stride, false};
  qkv.out[1] = {w.k, w.k_bias, k, stride, false};
  qkv.out[2] = {w.v, w.v_bias, v, stride, false};
  linear(context, qkv, tap);

  kernels::RopeAppendArgs rope;
  rope.batch = batch;
  rope.cache = cache;
  rope.q_heads = spec_.q_heads;
  rope.kv_heads = spec_.kv_heads;
  rope.head_dim = spec_.head_dim;
  rope.rope_dims = spec_.rope_dims;
  rope.q = q;
  rope.k = k;
  rope.v = v;
  rope.q_stride = rope.k_stride = rope.v_stride = stride;
  rope.q_norm = w.q_norm;
  rope.k_norm = w.k_norm;
  rope.key_offset = w.k_norm ? nullptr : w.k_bias;
  rope.eps = spec_.norm_eps;
  rope.style = spec_.rope_style;
  rope.cos_table = (local ? rope_.local_cos : rope_.global_cos).as<float>();
  rope.sin_table = (local ? rope_.local_sin : rope_.global_sin).as<float>();

  kernels::AttentionArgs attention;
  attention.append = &rope;
  attention.batch = batch;
  attention.cache = cache;
  attention.q_heads = spec_.q_heads;
  attention.kv_heads = spec_.kv_heads;
  attention.head_dim = spec_.head_dim;
  attention.q = q;
  attention.q_stride = stride;
  attention.scale = spec_.scale();
  attention.window = local ? spec_.window : 0;
  attention.key_offset = rope.key_offset;
  attention.rope_dims = rope.rope_dims;
  attention.style = rope.style;
  attention.cos_table = rope.cos_table;
  attention.sin_table = rope.sin_table;
  attention.out = attended;
  attention.out_stride = q_dim;
  kernels_->attention(context, attention);

  kernels::LinearArgs o;
  o.num_tokens = batch.num_tokens;
  o.x = attended;
  o.x_stride = q_dim;
  o.num_outputs = 1;
  o.out[0] = {w.o, w.o_bias, spec_.post_norms ? a.tmp : a.x, spec_.dim, !spec_.post_norms};
  linear(context, o, tap);
  if (spec_.post_norms)
    kernels_->norm(context, {batch.num_tokens, spec_.dim, a.tmp, spec_.dim, w.post_attn_norm, spec_.norm_eps, a.x, spec_.dim, true});
}

void Model::ffn_block(kernels::Context* context, Activations& a, int layer, int num_tokens, const LinearTap* tap) const {
  const LayerWeights& w = weights_.layers[size_t(layer)];
  DType gated = DType::kF32;
  const bool gates = kernels_->gates && kernels_->gates(context, w.gate, w.up, w.down, num_tokens, &gated);
  const kernels::Array gate(a.ffn, gates ? gated : between(context, {&w.gate, &w.up, &w.down}, num_tokens));
  const int width = gates ? spec_.ffn_dim : 2 * spec_.ffn_dim;
  kernels::LinearArgs up;
  up.num_tokens = num_tokens;
  up.x = a.x;
  up.x_stride = spec_.dim;
  up.prologue = kernels::Prologue::kRmsNorm;
  up.norm_weight = w.ffn_norm;
  up.eps = spec_.norm_eps;
  up.num_outputs = 2;
  up.out[0] = {w.gate, nullptr, gate, width, false};
  up.out[1] = {w.up, nullptr, gate.from(size_t(spec_.ffn_dim)), width, false};
  if (gates) up.gate = spec_.gelu ? kernels::Gate::kGelu : kernels::Gate::kSilu;
  linear(context, up, tap);

  kernels::LinearArgs down;
  down.num_tokens = num_tokens;
  down.x = gate;
  down.x_stride = width;
  if (!gates) down.prologue = spec_.gelu ? kernels::Prologue::kGeluMul : kernels::Prologue::kSiluMul;
  down.num_outputs = 1;
  down.out[0] = {w.down, nullptr, spec_.post_norms ? a.tmp : a.x, spec_.dim, !spec_.post_norms};
  linear(context, down, tap);
  if (spec_.post_norms)
    kernels_->norm(context, {num_tokens, spec_.dim, a.tmp, spec_.dim, w.post_ffn_norm, spec_.norm_eps, a.x, spec_.dim, true});
}

void Model::head(kernels::Context* context, Activations& a, const int32_t* token_rows, int num_rows) const {
  SLUICE_CHECK(num_rows <= a.max_rows);
  kernels_->gather(context, {num_rows, spec_.dim, a.x, token_rows, a.rows});
  kernels::LinearArgs head;
  head.num_tokens = num_rows;
  head.x = a.rows;
  head.x_stride = spec_.dim;
  head.prologue = kernels::Prologue::kRmsNorm;
  head.norm_weight = weights_.output_norm;
  head.eps = spec_.norm_eps;
  head.num_outputs = 1;
  head.out[0] = {weights_.head, nullptr, a.logits, spec_.vocab, false};
  kernels_->linear(context, head);
}

}  // namespace sluice::model
