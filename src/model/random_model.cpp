#include "model/random_model.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>

#include "base/fp8.h"
#include "base/rng.h"
#include "model/random_vocab.h"
#include "tensor/buffer.h"

namespace sluice::model {
namespace {

struct Shape {
  const char* name;
  int layers, dim, heads, kv_heads, head_dim, ffn, vocab, context;
  double rope_base;
  bool tied;  // the output head is the embedding
};

constexpr Shape kShapes[] = {
    {"llama-tiny", 2, 256, 4, 2, 64, 512, 512, 2048, 10000, true},
    {"llama-135m", 30, 576, 9, 3, 64, 1536, 49152, 8192, 100000, true},
    {"llama-1b", 16, 2048, 32, 8, 64, 8192, 128256, 131072, 500000, true},
    {"llama-8b", 32, 4096, 32, 8, 128, 14336, 128256, 131072, 500000, false},
    {"llama-70b", 80, 8192, 64, 8, 128, 28672, 128256, 131072, 500000, false},
};

format::Metadata describe(const Shape& s) {
  format::Metadata m;
  const std::string a = "llama.";
  m.insert("general.architecture", std::string("llama"));
  m.insert("general.name", std::string("random ") + s.name);
  m.insert(a + "block_count", int64_t{s.layers});
  m.insert(a + "embedding_length", int64_t{s.dim});
  m.insert(a + "context_length", int64_t{s.context});
  m.insert(a + "feed_forward_length", int64_t{s.ffn});
  m.insert(a + "attention.head_count", int64_t{s.heads});
  m.insert(a + "attention.head_count_kv", int64_t{s.kv_heads});
  m.insert(a + "attention.key_length", int64_t{s.head_dim});
  m.insert(a + "attention.value_length", int64_t{s.head_dim});
  m.insert(a + "attention.layer_norm_rms_epsilon", 1e-5);
  m.insert(a + "rope.dimension_count", int64_t{s.head_dim});
  m.insert(a + "rope.freq_base", s.rope_base);
  m.insert(a + "vocab_size", int64_t{s.vocab});
  add_random_vocab(m, s.vocab);
  return m;
}

// Matrices first as empty entries with their sizes, then views into the pool.
class Builder {
 public:
  Builder(const Shape& shape, const quant::WeightFormat& format, const RandomModelOptions& options)
      : s_(shape), format_(format), ends_(is_fp8(format.type) ? *quant::find_format(WeightType::kBF16) : format), options_(options) {}

  Result<std::shared_ptr<const format::WeightFile>> build() {
    list_tensors();
    for (const format::TensorEntry& t : tensors_) {
      if (t.dims.size() >= 2 && t.cols() % t.weight_format->block_elements)
        return invalid(std::string("'") + format_.name + "' has blocks of " + std::to_string(format_.block_elements) + ", and a row of " + t.name + " has " +
                       std::to_string(t.cols()) + " elements", "--weight-type");
    }
    auto memory = std::make_shared<Memory>();
    memory->norm.assign(size_t(s_.dim), 1.0f);
    for (format::TensorEntry& t : tensors_) {
      if (t.dims.size() < 2) t.bytes = {reinterpret_cast<const uint8_t*>(memory->norm.data()), size_t(t.dims[0]) * 4};
    }
    place(memory->pool, format_);
    if (&ends_ != &format_) place(memory->ends, ends_);
    return std::shared_ptr<const format::WeightFile>(std::make_shared<format::WeightFile>(describe(s_), std::move(tensors_), memory));
  }

 private:
  static constexpr size_t kStepBlocks = 32 * 61;        // between two matrices: odd, and a multiple of the alignment of 32
  static constexpr size_t kSliceBlocks = size_t{1} << 14;  // that one task fills, from its own stream
  struct Memory {
    Buffer pool, ends;
    std::vector<float> norm;
  };

  // The matrices of one format as views into a pool of it.
  void place(Buffer& pool, const quant::WeightFormat& format) {
    const size_t step = size_t(format.block_bytes) * kStepBlocks;
    size_t largest = 0, at = 0;
    const auto each = [&](auto fn) {
      for (format::TensorEntry& t : tensors_)
        if (t.dims.size() >= 2 && t.weight_format == &format) fn(t, size_t(t.rows()) * quant::row_bytes(format, size_t(t.cols())));
    };
    each([&](format::TensorEntry&, size_t bytes) { largest = std::max(largest, bytes), at += step; });
    pool = Buffer(largest + at + kSliceBlocks * size_t(format.block_bytes));
    if (options_.fill) fill(pool, format);
    at = 0;
    each([&](format::TensorEntry& t, size_t bytes) { t.bytes = {pool.as<const uint8_t>() + at, bytes}, at += step; });
  }
  void matrix(const std::string& name, int64_t rows, int64_t cols, const quant::WeightFormat& format) {
    format::TensorEntry t;
    t.name = name;
    t.type_id = uint32_t(format.type);
    t.weight_format = &format;
    t.dims = {cols, rows};
    if (is_fp8(format.type)) t.scale_cols = cols;  // see row_scale
    tensors_.push_back(std::move(t));
  }
  void norm(const std::string& name) {
    format::TensorEntry t;
    t.name = name;
    t.type_id = uint32_t(WeightType::kF32);
    t.weight_format = quant::find_format(WeightType::kF32);
    t.dims = {s_.dim};
    tensors_.push_back(std::move(t));
  }
  void list_tensors() {
    const int64_t q = int64_t{s_.heads} * s_.head_dim, kv = int64_t{s_.kv_heads} * s_.head_dim;
    matrix("token_embd.weight", s_.vocab, s_.dim, ends_);
    norm("output_norm.weight");
    if (!s_.tied) matrix("output.weight", s_.vocab, s_.dim, ends_);
    for (int i = 0; i < s_.layers; ++i) {
      const std::string p = "blk." + std::to_string(i) + ".";
      norm(p + "attn_norm.weight");
      matrix(p + "attn_q.weight", q, s_.dim, format_);
      matrix(p + "attn_k.weight", kv, s_.dim, format_);
      matrix(p + "attn_v.weight", kv, s_.dim, format_);
      matrix(p + "attn_output.weight", s_.dim, q, format_);
      norm(p + "ffn_norm.weight");
      matrix(p + "ffn_gate.weight", s_.ffn, s_.dim, format_);
      matrix(p + "ffn_up.weight", s_.ffn, s_.dim, format_);
      matrix(p + "ffn_down.weight", s_.dim, s_.ffn, format_);
    }
  }

  void fill(const Buffer& pool, const quant::WeightFormat& format) const {
    const size_t blocks = pool.bytes() / size_t(format.block_bytes), slices = blocks / kSliceBlocks;
    std::atomic<size_t> next{0};
    auto work = [&] {
      for (size_t i; (i = next.fetch_add(1)) < slices;)
        fill_slice(format, pool.as<uint8_t>() + i * kSliceBlocks * size_t(format.block_bytes), i);
    };
    std::vector<std::thread> threads;
    for (int t = 1; t < options_.threads; ++t) threads.emplace_back(work);
    work();
    for (auto& t : threads) t.join();
  }
  // Of fp8: one scale for all rows, as if each had its own, by what codes of random bits are in the mean.
  static float row_scale(float deviation) {
    double square = 0;
    for (int code = 0; code < 128; ++code) {
      const double v = e4m3_to_float(uint8_t(std::min(code, 126)));  // what stands for no number became the largest
      square += v * v;
    }
    return float(deviation / std::sqrt(square / 128));
  }
  // Quantised: random bytes, then the scales. Floats: the sum of two uniforms of 16 bits.
  void fill_slice(const quant::WeightFormat& format, uint8_t* out, size_t stream) const {
    Rng rng(options_.seed, stream);
    const float deviation = 1.0f / std::sqrt(float(s_.dim));
    if (format.scale_random) {
      const size_t bytes = kSliceBlocks * size_t(format.block_bytes);
      for (size_t i = 0; i < bytes; i += 4) {
        const uint32_t word = rng.next_u32();
        std::memcpy(out + i, &word, 4);
      }
      for (size_t b = 0; b < kSliceBlocks; ++b) format.scale_random(out + b * size_t(format.block_bytes), deviation);
      if (is_fp8(format.type)) {
        const float scale = row_scale(deviation);
        for (size_t b = 0; b < kSliceBlocks; ++b) std::memcpy(out + b * size_t(format.block_bytes), &scale, sizeof scale);
      }
      return;
    }
    const float unit = deviation * std::sqrt(6.0f) / 65536.0f;
    float values[256];
    for (size_t done = 0; done < kSliceBlocks; done += 256) {
      for (float& v : values) {
        const uint32_t word = rng.next_u32();
        v = (float(word >> 16) + float(word & 0xFFFF) - 65535.0f) * unit;
      }
      format.encode(values, out + done * size_t(format.block_bytes), 256);
    }
  }

  const Shape& s_;
  const quant::WeightFormat& format_;
  const quant::WeightFormat& ends_;  // of the embedding and the head, which files of fp8 leave in bf16
  const RandomModelOptions& options_;
  std::vector<format::TensorEntry> tensors_;
};

}  // namespace

std::string random_shapes() {
  std::string names;
  for (const Shape& s : kShapes) names += std::string(names.empty() ? "" : ", ") + s.name;
  return names;
}

Result<std::shared_ptr<const format::WeightFile>> make_random_model(const RandomModelOptions& options) {
  const auto* found = std::find_if(std::begin(kShapes), std::end(kShapes), [&](const Shape& s) { return options.shape == s.name; });
  if (found == std::end(kShapes)) return invalid("'" + options.shape + "' is no shape (" + random_shapes() + " are)", "--random");
  if (options.vocab != 0 && options.vocab < kLeastVocab)
    return invalid("a vocabulary of " + std::to_string(options.vocab) + " tokens is under the least of random weights, " + std::to_string(kLeastVocab), "--random");
  Shape shape = *found;
  if (options.vocab > 0) shape.vocab = options.vocab;
  // "fp8": in the largest blocks that rows are made of.
  const auto fits = [&](int unit) { return shape.dim % unit == 0 && shape.ffn % unit == 0 && shape.heads * shape.head_dim % unit == 0; };
  if (options.weight_type == "fp8")
    return Builder(shape, *quant::find_format(fits(128) ? WeightType::kFp8_128 : fits(64) ? WeightType::kFp8_64 : WeightType::kFp8_32), options).build();
  std::string types = "fp8";
  for (const quant::WeightFormat* f : quant::formats_table()) {
    if (options.weight_type == f->name) return Builder(shape, *f, options).build();
    types += std::string(", ") + f->name;
  }
  return invalid("'" + options.weight_type + "' is no weight type (" + types + " are)", "--weight-type");
}

}  // namespace sluice::model
