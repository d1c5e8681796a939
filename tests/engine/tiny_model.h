// Writes a tiny random model as a GGUF file: any supported architecture, weights from a seed, a byte vocabulary. For tests.
#pragma once
#include <cmath>
#include <cstring>
#include <fstream>
#include <string>
#include <unistd.h>
#include <vector>

#include "base/half.h"
#include "base/rng.h"

namespace sluice::testing {

struct TinyShape {
  std::string architecture = "llama";
  int layers = 2, dim = 64, heads = 4, kv_heads = 2, head_dim = 32, ffn = 96, context = 512, window = 24;
  bool quantised = true;  // Q8_0 matrices, else F32
};

class TinyModel {
 public:
  explicit TinyModel(const TinyShape& s, uint64_t seed = 1) : shape_(s), rng_(seed) {
    metadata();
    tensors();
    path_ = "/tmp/sluice_tiny_" + std::to_string(::getpid()) + "_" + s.architecture + (s.quantised ? "_q" : "_f") + std::to_string(seed) + ".gguf";
    std::string file = "GGUF";
    auto put = [&](auto v) { file.append(reinterpret_cast<const char*>(&v), sizeof v); };
    put(uint32_t{3});
    put(uint64_t(num_tensors_));
    put(uint64_t(num_kv_));
    file += kv_ + info_;
    file.resize((file.size() + 31) / 32 * 32);
    file += data_;
    std::ofstream(path_, std::ios::binary) << file;
  }
  ~TinyModel() { ::unlink(path_.c_str()); }
  const std::string& path() const { return path_; }
  static constexpr int kVocab = 256 + 4;  // bytes, <bos>, <eos>, <user>, th

 private:
  static void put_string(std::string& out, const std::string& s) {
    const uint64_t n = s.size();
    out.append(reinterpret_cast<const char*>(&n), 8);
    out += s;
  }
  template <class T>
  void kv(const std::string& key, uint32_t type, T v) {
    ++num_kv_;
    put_string(kv_, key);
    kv_.append(reinterpret_cast<const char*>(&type), 4);
    kv_.append(reinterpret_cast<const char*>(&v), sizeof v);
  }
  void kv_u32(const std::string& key, uint32_t v) { kv(key, 4, v); }
  void kv_string(const std::string& key, const std::string& v) {
    ++num_kv_;
    put_string(kv_, key);
    const uint32_t type = 8;
    kv_.append(reinterpret_cast<const char*>(&type), 4);
    put_string(kv_, v);
  }
  void kv_array_head(const std::string& key, uint32_t type, uint64_t count) {
    ++num_kv_;
    put_string(kv_, key);
    const uint32_t array = 9;
    kv_.append(reinterpret_cast<const char*>(&array), 4);
    kv_.append(reinterpret_cast<const char*>(&type), 4);
    kv_.append(reinterpret_cast<const char*>(&count), 8);
  }

  void metadata() {
    const std::string& a = shape_.architecture;
    kv_string("general.architecture", a);
    kv_u32(a + ".block_count", uint32_t(shape_.layers));
    kv_u32(a + ".embedding_length", uint32_t(shape_.dim));
    kv_u32(a + ".context_length", uint32_t(shape_.context));
    kv_u32(a + ".feed_forward_length", uint32_t(shape_.ffn));
    kv_u32(a + ".attention.head_count", uint32_t(shape_.heads));
    kv_u32(a + ".attention.head_count_kv", uint32_t(shape_.kv_heads));
    kv_u32(a + ".attention.key_length", uint32_t(shape_.head_dim));
    kv_u32(a + ".attention.value_length", uint32_t(shape_.head_dim));
    kv(a + ".attention.layer_norm_rms_epsilon", 6, 1e-5f);
    if (a == "gemma3") kv_u32(a + ".attention.sliding_window", uint32_t(shape_.window));
    kv_string("tokenizer.ggml.model", "gpt2");
    kv_string("tokenizer.ggml.pre", "gpt-2");
    kv_array_head("tokenizer.ggml.tokens", 8, kVocab);
    int extra = 0;
    for (int b = 0; b < 256; ++b) {
      const bool plain = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      const int c = plain ? b : 0x100 + extra++;
      put_string(kv_, c < 0x80 ? std::string(1, char(c)) : std::string{char(0xC0 | c >> 6), char(0x80 | (c & 63))});
    }
    for (const char* t : {"<bos>", "<eos>", "<user>", "th"}) put_string(kv_, t);
    kv_array_head("tokenizer.ggml.token_type", 5, kVocab);
    for (int i = 0; i < kVocab; ++i) {
      const int32_t kind = i < 256 || i == 259 ? 1 : 3;
      kv_.append(reinterpret_cast<const char*>(&kind), 4);
    }
    kv_array_head("tokenizer.ggml.merges", 8, 1);
    put_string(kv_, "t h");
    kv_u32("tokenizer.ggml.bos_token_id", 256);
    kv_u32("tokenizer.ggml.eos_token_id", 257);
  }

  void tensor(const std::string& name, int rows, int cols, bool matrix, float mean = 0) {
    ++num_tensors_;
    put_string(info_, name);
    const uint32_t dims = matrix ? 2 : 1;
    info_.append(reinterpret_cast<const char*>(&dims), 4);
    for (const uint64_t n : matrix ? std::vector<uint64_t>{uint64_t(cols), uint64_t(rows)} : std::vector<uint64_t>{uint64_t(cols)})
      info_.append(reinterpret_cast<const char*>(&n), 8);
    const bool q = matrix && shape_.quantised;
    const uint32_t type = q ? 8 : 0;
    info_.append(reinterpret_cast<const char*>(&type), 4);
    const uint64_t offset = data_.size();
    info_.append(reinterpret_cast<const char*>(&offset), 8);
    const float scale = matrix ? 1.0f / std::sqrt(float(cols)) : 0.1f;
    for (int i = 0; i < rows * cols; i += q ? 32 : 1) {
      if (!q) {
        const float v = mean + scale * rng_.normalish();
        data_.append(reinterpret_cast<const char*>(&v), 4);
        continue;
      }
      const uint16_t d = float_to_half(scale / 64);
      data_.append(reinterpret_cast<const char*>(&d), 2);
      for (int j = 0; j < 32; ++j) data_ += char(int(rng_.below(255)) - 127);
    }
    data_.resize((data_.size() + 31) / 32 * 32);
  }

  void tensors() {
    const int d = shape_.dim, q = shape_.heads * shape_.head_dim, kv = shape_.kv_heads * shape_.head_dim;
    const bool gemma = shape_.architecture == "gemma3";
    tensor("token_embd.weight", kVocab, d, true);
    tensor("output_norm.weight", 1, d, false, 1);
    for (int i = 0; i < shape_.layers; ++i) {
      const std::string p = "blk." + std::to_string(i) + ".";
      tensor(p + "attn_norm.weight", 1, d, false, 1);
      tensor(p + "ffn_norm.weight", 1, d, false, 1);
      tensor(p + "attn_q.weight", q, d, true);
      tensor(p + "attn_k.weight", kv, d, true);
      tensor(p + "attn_v.weight", kv, d, true);
      tensor(p + "attn_output.weight", d, q, true);
      tensor(p + "ffn_gate.weight", shape_.ffn, d, true);
      tensor(p + "ffn_up.weight", shape_.ffn, d, true);
      tensor(p + "ffn_down.weight", d, shape_.ffn, true);
      if (shape_.architecture == "qwen2")
        for (const auto& [n, size] : {std::pair<const char*, int>{"q", q}, {"k", kv}, {"v", kv}}) tensor(p + "attn_" + n + ".bias", 1, size, false);
      if (gemma) {
        tensor(p + "attn_q_norm.weight", 1, shape_.head_dim, false, 1);
        tensor(p + "attn_k_norm.weight", 1, shape_.head_dim, false, 1);
        tensor(p + "post_attention_norm.weight", 1, d, false, 1);
        tensor(p + "post_ffw_norm.weight", 1, d, false, 1);
      }
    }
  }

  TinyShape shape_;
  Rng rng_;
  std::string path_, kv_, info_, data_;
  int num_kv_ = 0, num_tensors_ = 0;
};

}  // namespace sluice::testing
