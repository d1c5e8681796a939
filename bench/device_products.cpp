// Products of device_bench.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>

#include "base/half.h"
#include "base/rng.h"
#include "device.h"
#include "kernels/cuda/cuda_context.h"
#include "quant/weight_format.h"

namespace sluice::bench {
namespace {

// Random rows of a type in file layout, a few megabytes to fill weights with.
std::vector<uint8_t> weight_pattern(WeightType type, int cols) {
  const quant::WeightFormat* f = quant::find_format(type);
  const size_t row = quant::row_bytes(*f, size_t(cols)), rows = std::max<size_t>(16, (size_t{4} << 20) / row / 16 * 16);
  std::vector<uint8_t> bytes(rows * row);
  Rng rng(5);
  if (f->encode) {
    std::vector<float> w(size_t(cols) * rows);
    for (float& v : w) v = rng.normalish() * 0.02f;
    f->encode(w.data(), bytes.data(), w.size());
    return bytes;
  }
  for (uint8_t& b : bytes) b = uint8_t(rng.next_u32() >> 13);
  const uint16_t scale = float_to_half(0.001f);
  for (size_t at = 0; at < bytes.size(); at += size_t(f->block_bytes)) {
    std::memcpy(&bytes[at + (type == WeightType::kQ6_K ? 208 : 0)], &scale, 2);
    if (type == WeightType::kQ4_1 || type == WeightType::kQ5_1 || type == WeightType::kQ4_K || type == WeightType::kQ5_K)
      std::memcpy(&bytes[at + 2], &scale, 2);
  }
  return bytes;
}

// Packed rows of a type, to fill weights with.
std::vector<uint8_t> packed_pattern(const Device& d, WeightType type, int cols) {
  const std::vector<uint8_t> pattern = weight_pattern(type, cols);
  const int rows = int(pattern.size() / quant::row_bytes(*quant::find_format(type), size_t(cols)));
  std::vector<uint8_t> packed(d.t->packed_bytes(type, rows, cols));
  d.t->pack(type, rows, cols, pattern.data(), packed.data(), 0, rows);
  return packed;
}

void bench_layer(const Device& d, const Shape& s, const Layer& l, WeightType type, const std::vector<int>& tokens) {
  const quant::WeightFormat* f = quant::find_format(type);
  int rows = 0;
  for (int r : l.rows) rows += r;
  const size_t bytes = d.t->packed_bytes(type, rows, l.cols), file_bytes = size_t(rows) * quant::row_bytes(*f, size_t(l.cols));
  if (!bytes) return;
  const int copies = int(std::clamp<size_t>((size_t{400} << 20) / bytes, 1, 32));
  const Memory weights(d, bytes * size_t(copies));
  weights.fill(packed_pattern(d, type, l.cols));
  const int most = *std::max_element(tokens.begin(), tokens.end()), x_cols = l.prologue == Prologue::kSiluMul ? 2 * l.cols : l.cols;
  const Memory x(d, size_t(most) * x_cols * 4), y(d, size_t(most) * rows * 4), norm(d, size_t(l.cols) * 4);
  std::vector<float> values(size_t{1} << 20);
  Rng rng(7);
  for (float& v : values) v = rng.normalish();
  const std::vector<uint8_t> floats(reinterpret_cast<uint8_t*>(values.data()), reinterpret_cast<uint8_t*>(values.data() + values.size()));
  x.fill(floats);
  norm.fill(floats);
  for (int T : tokens) {
    LinearArgs a;
    a.num_tokens = T;
    a.x = x.floats(), a.x_stride = x_cols;
    a.prologue = l.prologue, a.norm_weight = norm.floats(), a.eps = 1e-5f;
    a.num_outputs = int(l.rows.size());
    const auto call = [&](int i) {
      const uint8_t* w = weights.data + size_t(i % copies) * bytes;
      int row = 0;
      for (size_t o = 0; o < l.rows.size(); ++o) {
        const size_t part = d.t->packed_bytes(type, l.rows[o], l.cols);
        a.out[o] = {{type, l.rows[o], l.cols, w, part}, nullptr, y.floats() + row, rows, l.accumulate};
        w += part, row += l.rows[o];
      }
      d.t->linear(d.context, a);
    };
    const double us = time_of(d, T >= 512 ? 6 : 24, call);
    const std::string name = std::string(s.name) + " " + f->name + " " + l.name;
    report(d, name.c_str(), T, us, double(file_bytes) + double(T) * (x_cols + rows * (l.accumulate ? 2 : 1)) * 4, 2.0 * T * rows * l.cols);
  }
}

}  // namespace

void bench_products(const Device& d, const Shape& s, WeightType type, const std::vector<int>& tokens) {
  for (const Layer& l : s.layers()) {
    std::vector<int> some;
    for (int T : tokens)
      if (T <= 512 || l.rows[0] != s.vocab) some.push_back(T);
    bench_layer(d, s, l, type, some);
  }
}

LayerProducts::LayerProducts(const Device& d, const Shape& s, WeightType type, int tokens)
    : d_(d), tokens_(tokens), dim_(s.dim), ffn_(s.ffn), half_(type == WeightType::kF16 ? DType::kF16 : DType::kBF16),
      weights_(d, d.t->packed_bytes(type, (s.heads + 2 * s.kv_heads) * s.head_dim, s.dim) + d.t->packed_bytes(type, s.dim, s.heads * s.head_dim) +
                      2 * d.t->packed_bytes(type, s.ffn, s.dim) + d.t->packed_bytes(type, s.dim, s.ffn)),
      scales_(d, size_t((s.heads + 2 * s.kv_heads) * s.head_dim + 2 * s.dim + 2 * s.ffn) * 4),
      normed_(d, size_t(tokens) * s.dim * 2), attended_(d, size_t(tokens) * s.heads * s.head_dim * 2),
      queries_(d, size_t(tokens) * (s.heads + 2 * s.kv_heads) * s.head_dim * 2), gates_(d, size_t(tokens) * s.ffn * 2 * 2), residual_(d, size_t(tokens) * s.dim * 4) {
  const uint8_t* at = weights_.data;
  const float* scales = scales_.floats();
  const auto next = [&](int rows, int cols) {
    const size_t bytes = d.t->packed_bytes(type, rows, cols);
    PackedWeight w{type, rows, cols, at, bytes};
    if (is_fp8(type)) w.scales = scales, w.scale_cols = cols;
    at += bytes, scales += rows;
    return w;
  };
  qkv_ = next((s.heads + 2 * s.kv_heads) * s.head_dim, s.dim), o_ = next(s.dim, s.heads * s.head_dim);
  gate_ = next(s.ffn, s.dim), up_ = next(s.ffn, s.dim), down_ = next(s.dim, s.ffn);
  weights_.fill(packed_pattern(d, type, s.dim));
  const std::vector<float> small(size_t{1} << 16, 1e-4f);
  scales_.fill({reinterpret_cast<const uint8_t*>(small.data()), reinterpret_cast<const uint8_t*>(small.data() + small.size())});
  std::vector<uint16_t> halves(size_t{1} << 21);
  Rng rng(11);
  for (uint16_t& h : halves) h = half_ == DType::kF16 ? float_to_half(rng.normalish()) : float_to_bf16(rng.normalish());
  const std::vector<uint8_t> bytes(reinterpret_cast<uint8_t*>(halves.data()), reinterpret_cast<uint8_t*>(halves.data() + halves.size()));
  normed_.fill(bytes);
  attended_.fill(bytes);
  if (d.t->activations(d.context, qkv_, tokens) != half_) std::fprintf(stderr, "the backend takes no halves there\n"), std::exit(1);
}

void LayerProducts::qkv() const {
  LinearArgs a;
  a.num_tokens = tokens_, a.x = {normed_.data, half_}, a.x_stride = dim_, a.num_outputs = 1;
  a.out[0] = {qkv_, nullptr, {queries_.data, half_}, qkv_.rows, false};
  d_.t->linear(d_.context, a);
}
void LayerProducts::o() const {
  LinearArgs a;
  a.num_tokens = tokens_, a.x = {attended_.data, half_}, a.x_stride = o_.cols, a.num_outputs = 1;
  a.out[0] = {o_, nullptr, residual_.floats(), dim_, true};
  d_.t->linear(d_.context, a);
}
void LayerProducts::feed_forward() const {
  DType gated = half_;
  const bool in_product = d_.t->gates && d_.t->gates(d_.context, gate_, up_, down_, tokens_, &gated);
  const int width = in_product ? ffn_ : 2 * ffn_;
  const Array gates{gates_.data, gated};
  LinearArgs a;
  a.num_tokens = tokens_, a.x = {normed_.data, half_}, a.x_stride = dim_, a.num_outputs = 2;
  a.out[0] = {gate_, nullptr, gates, width, false};
  a.out[1] = {up_, nullptr, gates.from(size_t(ffn_)), width, false};
  if (in_product) a.gate = Gate::kSilu;
  d_.t->linear(d_.context, a);
  LinearArgs b;
  b.num_tokens = tokens_, b.x = gates, b.x_stride = width, b.num_outputs = 1;
  if (!in_product) b.prologue = Prologue::kSiluMul;
  b.out[0] = {down_, nullptr, residual_.floats(), dim_, true};
  d_.t->linear(d_.context, b);
}

void bench_layer_products(const Device& d, const Shape& s, WeightType type, const std::vector<int>& tokens) {
  cuda::CudaContext* c = cuda::of(d.context);
  cuda::Library* library = c->library;
  const std::string name = std::string(s.name) + " " + quant::find_format(type)->name;
  for (int T : tokens) {
    const LayerProducts l(d, s, type, T);
    const int calls = std::clamp(8192 / T, 4, 32);
    for (int round = 0; round < 2; ++round)  // the second is of a device as warm as it gets
      for (cuda::Library* by : {library, static_cast<cuda::Library*>(nullptr)}) {
        c->library = by;
        const auto time = [&](const char* what, double flops, const std::function<void(int)>& call) {
          report(d, (name + " " + what + (by ? ", library" : ", own")).c_str(), T, time_of(d, calls, call), 0, flops);
        };
        if (round == 0) time("qkv", l.qkv_flops(), [&](int) { l.qkv(); });
        if (round == 0) time("o", l.o_flops(), [&](int) { l.o(); });
        if (round == 0) time("ffn", l.feed_forward_flops(), [&](int) { l.feed_forward(); });
        if (round == 1) time("all", l.qkv_flops() + l.o_flops() + l.feed_forward_flops(), [&](int) { for (int i = 0; i < 8; ++i) l.all(); });
      }
    c->library = library;
  }
}

}  // namespace sluice::bench
