#include "model/weights.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <thread>

#include "quant/fp8_scales.h"

namespace sluice::model {

int64_t scale_cols(const format::TensorEntry& t) { return t.scale_cols > 0 ? t.scale_cols : side_unit(t.weight_format->type); }

namespace {

struct PackJob {
  const format::TensorEntry* tensor;
  kernels::PackedWeight* out;
};

// Rows of a matrix; or bytes of the embedding, where job is null.
struct Slice {
  const PackJob* job;
  int row_begin, row_end;
  size_t from, to;
};

class Loader {
 public:
  Loader(std::shared_ptr<const format::WeightFile> file, ModelSpec& spec, const kernels::KernelTable& kernels)
      : file_(std::move(file)), spec_(spec), kernels_(kernels) {
    weights_.file = file_;
  }

  Result<Weights> load(int threads, const std::function<void(size_t, size_t)>& progress) {
    SLUICE_TRY(load_embedding_and_head());
    weights_.layers.resize(size_t(spec_.num_layers));
    for (int i = 0; i < spec_.num_layers; ++i) SLUICE_TRY(load_layer(i));
    SLUICE_TRY(pack(threads, progress));
    file_->keep_only(kernels_.host_memory ? weights_.embedding : nullptr);  // the rest lives in its packed form
    return std::move(weights_);
  }

  Result<Weights> load_one(int threads, int layer) {
    SLUICE_TRY(load_rope_factors());
    weights_.layers.resize(size_t(spec_.num_layers));
    SLUICE_TRY(load_layer(layer));
    SLUICE_TRY(pack(threads, nullptr));
    return std::move(weights_);
  }

 private:
  Result<const format::TensorEntry*> tensor(const std::string& name, int64_t rows, int64_t cols) {
    const format::TensorEntry* t = file_->find(name);
    if (!t) return bad_file(name + ": the tensor is missing");
    if (!t->weight_format)
      return Error{ErrorCode::kUnsupported, name + ": weight type " + std::to_string(t->type_id) + " is not supported", {}};
    if (t->cols() != cols || t->rows() != rows)
      return bad_file(name + ": shape [" + std::to_string(t->rows()) + ", " + std::to_string(t->cols()) + "], wanted [" +
                      std::to_string(rows) + ", " + std::to_string(cols) + "]");
    return t;
  }

  Status vector(const std::string& name, int n, const float** out) {
    SLUICE_ASSIGN(const format::TensorEntry* t, tensor(name, 1, n));
    std::vector<float> values(static_cast<size_t>(n));
    format::decode_rows(*t, 0, 1, values.data());
    SLUICE_ASSIGN(void* data, place(values.data(), size_t(n) * 4));
    *out = static_cast<const float*>(data);
    return {};
  }
  // A copy in backend memory. Small arrays share buffers.
  Result<void*> place(const void* from, size_t bytes) {
    const size_t needed = (bytes + 255) / 256 * 256;
    if (needed > shared_left_) {
      const size_t size = std::max(needed, kSharedBytes);
      SLUICE_ASSIGN(shared_at_, allocate(size));
      shared_left_ = size;
    }
    void* to = shared_at_;
    shared_at_ = static_cast<char*>(shared_at_) + needed;
    shared_left_ -= needed;
    SLUICE_TRY(load_bytes(to, from, bytes));
    return to;
  }
  Result<void*> allocate(size_t bytes) {
    weights_.buffers.emplace_back(kernels_, bytes);
    if (!weights_.buffers.back().ok())
      return Error{ErrorCode::kUnavailable, std::string("backend ") + kernels_.name + " has no room for " + std::to_string(bytes) + " bytes of weights", {}};
    return weights_.buffers.back().data();
  }
  Status load_bytes(void* to, const void* from, size_t bytes) {
    return kernels_.load(kernels_.device, to, from, bytes) ? Status{} : copy_failed();
  }
  Status copy_failed() const {
    return Error{ErrorCode::kUnavailable, std::string("backend ") + kernels_.name + " failed while weights were copied to it", {}};
  }
  Status optional_vector(const std::string& name, int n, const float** out) {
    return file_->find(name) ? vector(name, n, out) : Status{};
  }

  Status matrix(const std::string& name, int64_t rows, int64_t cols, kernels::PackedWeight* out) {
    SLUICE_ASSIGN(const format::TensorEntry* t, tensor(name, rows, cols));
    out->type = t->weight_format->type;
    out->rows = int(rows);
    out->cols = int(cols);
    out->bytes = kernels_.packed_bytes(out->type, out->rows, out->cols);
    if (out->bytes == 0)
      return Error{ErrorCode::kUnsupported, name + ": no linear kernel for " + t->weight_format->name + " with " +
                   std::to_string(cols) + " columns in backend " + kernels_.name, {}};
    if (kernels_.scales_apart && kernels_.scales_apart(out->type)) out->scale_cols = int(scale_cols(*t));
    if (t->input_order) {
      SLUICE_TRY(place_order(name, *t->input_order, cols, &out->input_order));
    }
    jobs_.push_back({t, out});
    return {};
  }
  // Equal orders are one array: products that read inputs alike prepare them together.
  Status place_order(const std::string& name, const std::vector<int32_t>& order, int64_t cols, const int32_t** out) {
    if (int64_t(order.size()) != cols) return bad_file(name + ": an order of " + std::to_string(order.size()) + " inputs, not " + std::to_string(cols));
    const auto [at, fresh] = orders_.emplace(order, nullptr);
    if (fresh) {
      SLUICE_ASSIGN(void* data, place(order.data(), order.size() * sizeof(int32_t)));
      at->second = static_cast<const int32_t*>(data);
    }
    *out = at->second;
    return {};
  }

  Status load_embedding_and_head() {
    const format::TensorEntry* embedding = file_->find("token_embd.weight");
    if (!embedding) return bad_file("token_embd.weight: the tensor is missing");
    if (embedding->rows() > kMaxVocab) return bad_file("token_embd.weight: more than " + std::to_string(kMaxVocab) + " rows");
    spec_.vocab = int(embedding->rows());
    SLUICE_ASSIGN(weights_.embedding, tensor("token_embd.weight", spec_.vocab, spec_.dim));
    const std::span<const uint8_t> table = weights_.embedding->bytes;
    if (weights_.embedding->make_rows)
      return Error{ErrorCode::kUnsupported, "token_embd.weight: embeddings in " + std::string(embedding->weight_format->name) + " are not supported", {}};
    weights_.embedding_data = table.data();
    if (!kernels_.host_memory) {
      SLUICE_ASSIGN(embedding_at_, allocate(table.size()));
      weights_.embedding_data = embedding_at_;
    }
    SLUICE_TRY(vector("output_norm.weight", spec_.dim, &weights_.output_norm));
    const bool tied = !file_->find("output.weight");
    SLUICE_TRY(matrix(tied ? "token_embd.weight" : "output.weight", spec_.vocab, spec_.dim, &weights_.head));
    return load_rope_factors();
  }

  Status load_rope_factors() {
    if (!file_->find("rope_freqs.weight")) return {};
    SLUICE_ASSIGN(const format::TensorEntry* factors, tensor("rope_freqs.weight", 1, spec_.rope_dims / 2));
    weights_.rope_factors.resize(size_t(spec_.rope_dims / 2));
    format::decode_rows(*factors, 0, 1, weights_.rope_factors.data());
    for (float f : weights_.rope_factors)
      if (!(f > 0)) return bad_file("rope_freqs.weight: a factor is not above 0");
    return {};
  }

  Status load_layer(int i) {
    LayerWeights& l = weights_.layers[size_t(i)];
    const std::string p = "blk." + std::to_string(i) + ".";
    const int d = spec_.dim, q = spec_.q_heads * spec_.head_dim, kv = spec_.kv_heads * spec_.head_dim;
    SLUICE_TRY(vector(p + "attn_norm.weight", d, &l.attn_norm));
    SLUICE_TRY(vector(p + "ffn_norm.weight", d, &l.ffn_norm));
    SLUICE_TRY(matrix(p + "attn_q.weight", q, d, &l.q));
    SLUICE_TRY(matrix(p + "attn_k.weight", kv, d, &l.k));
    SLUICE_TRY(matrix(p + "attn_v.weight", kv, d, &l.v));
    SLUICE_TRY(matrix(p + "attn_output.weight", d, q, &l.o));
    SLUICE_TRY(matrix(p + "ffn_gate.weight", spec_.ffn_dim, d, &l.gate));
    SLUICE_TRY(matrix(p + "ffn_up.weight", spec_.ffn_dim, d, &l.up));
    SLUICE_TRY(matrix(p + "ffn_down.weight", d, spec_.ffn_dim, &l.down));
    SLUICE_TRY(optional_vector(p + "attn_q.bias", q, &l.q_bias));
    SLUICE_TRY(optional_vector(p + "attn_k.bias", kv, &l.k_bias));
    SLUICE_TRY(optional_vector(p + "attn_v.bias", kv, &l.v_bias));
    SLUICE_TRY(optional_vector(p + "attn_output.bias", d, &l.o_bias));
    if (spec_.qk_norm) {
      SLUICE_TRY(vector(p + "attn_q_norm.weight", spec_.head_dim, &l.q_norm));
      SLUICE_TRY(vector(p + "attn_k_norm.weight", spec_.head_dim, &l.k_norm));
    }
    if (spec_.post_norms) {
      SLUICE_TRY(vector(p + "post_attention_norm.weight", d, &l.post_attn_norm));
      SLUICE_TRY(vector(p + "post_ffw_norm.weight", d, &l.post_ffn_norm));
    }
    return {};
  }

  // All matrices in one piece of backend memory; then threads take slices of rows, whichever matrix they belong to. Where backend memory is
  // not the host's, a slice is packed into the thread's staging buffer and copied from there.
  Status pack(int threads, const std::function<void(size_t, size_t)>& progress) {
    std::vector<Slice> slices;
    size_t staging = 0;
    if (embedding_at_) {
      staging = kSliceBytes;
      const size_t bytes = weights_.embedding->bytes.size();
      for (size_t at = 0; at < bytes; at += kSliceBytes) slices.push_back({nullptr, 0, 0, at, std::min(bytes, at + kSliceBytes)});
    }
    size_t total = 0;
    for (const PackJob& job : jobs_) total += (job.out->bytes + 255) / 256 * 256;
    SLUICE_ASSIGN(void* memory, allocate(total));
    SLUICE_TRY(place_scales());
    auto* at = static_cast<char*>(memory);
    for (const PackJob& job : jobs_) {
      const kernels::PackedWeight& w = *job.out;
      job.out->data = at;
      at += (w.bytes + 255) / 256 * 256;
      weights_.packed_bytes += w.bytes;
      const size_t tile_bytes = std::max<size_t>(1, w.bytes / size_t(w.rows) * size_t(kernels_.pack_rows));
      const int tiles = kernels_.host_memory ? 16 : int(std::max<size_t>(1, kSliceBytes / tile_bytes));
      for (int r = 0; r < w.rows; r += kernels_.pack_rows * tiles) {
        slices.push_back({&job, r, std::min(r + kernels_.pack_rows * tiles, w.rows), 0, 0});
        if (!kernels_.host_memory) staging = std::max(staging, offset(w, slices.back().row_end) - offset(w, r));
      }
    }
    std::atomic<size_t> next{0}, done{0};
    std::atomic<bool> failed{false};
    auto work = [&](bool reports) {
      const kernels::BackendBuffer buffer(kernels_, staging, kernels::MemoryKind::kStaging);
      if (!buffer.ok()) failed = true;
      for (size_t i; !failed && (i = next.fetch_add(1)) < slices.size();) {
        const Slice& s = slices[i];
        if (!(s.job ? pack_rows(s, buffer.as<char>()) : copy_embedding(s, buffer.data()))) failed = true;
        if (s.job) done += s.job->out->bytes / size_t(s.job->out->rows) * size_t(s.row_end - s.row_begin);
        if (reports && progress) progress(done, weights_.packed_bytes);
      }
    };
    std::vector<std::thread> pool;
    for (int t = 1; t < threads; ++t) pool.emplace_back(work, false);
    work(true);
    for (auto& t : pool) t.join();
    if (failed) return copy_failed();
    if (progress) progress(weights_.packed_bytes, weights_.packed_bytes);
    return {};
  }
  // Scales that kernels keep apart: of all matrices in one piece, neighbours side by side.
  Status place_scales() {
    size_t floats = 0;
    for (const PackJob& job : jobs_) floats += num_scales(*job.out);
    if (floats == 0) return {};
    SLUICE_ASSIGN(void* memory, allocate(floats * sizeof(float)));
    auto* at = static_cast<float*>(memory);
    for (const PackJob& job : jobs_) {
      if (num_scales(*job.out) == 0) continue;
      job.out->scales = at;
      at += num_scales(*job.out);
    }
    weights_.packed_bytes += floats * sizeof(float);
    return {};
  }
  static size_t num_scales(const kernels::PackedWeight& w) { return w.scale_cols > 0 ? size_t(w.rows) * size_t(w.cols / w.scale_cols) : 0; }
  bool copy_scales(const kernels::PackedWeight& w, const uint8_t* rows, int begin, int end) const {
    const size_t a_row = size_t(w.cols / w.scale_cols);
    std::vector<float> scales(size_t(end - begin) * a_row);
    quant::fp8_scales(w.type, rows, end - begin, w.cols, w.scale_cols, scales.data());
    return kernels_.load(kernels_.device, const_cast<float*>(w.scales) + size_t(begin) * a_row, scales.data(), scales.size() * sizeof(float));
  }
  size_t offset(const kernels::PackedWeight& w, int row) const { return kernels_.packed_offset(w.type, w.rows, w.cols, row); }
  bool copy_embedding(const Slice& s, void* staging) const {
    std::memcpy(staging, weights_.embedding->bytes.data() + s.from, s.to - s.from);
    return kernels_.load(kernels_.device, static_cast<char*>(embedding_at_) + s.from, staging, s.to - s.from);
  }
  bool pack_rows(const Slice& s, char* staging) const {
    const PackJob& job = *s.job;
    const kernels::PackedWeight& w = *job.out;
    auto* data = static_cast<char*>(const_cast<void*>(w.data));
    // Rows that the file has otherwise are made here, a slice at a time: there is never a whole matrix of them.
    const size_t row_bytes = quant::row_bytes(*job.tensor->weight_format, size_t(w.cols));
    std::vector<uint8_t> made(job.tensor->make_rows ? size_t(s.row_end - s.row_begin) * row_bytes : 0);
    const uint8_t* rows = job.tensor->bytes.data();
    if (job.tensor->make_rows) {
      format::read_rows(*job.tensor, s.row_begin, s.row_end, made.data());
      rows = made.data() - size_t(s.row_begin) * row_bytes;
    }
    if (kernels_.host_memory) {
      kernels_.pack(w.type, w.rows, w.cols, rows, data, s.row_begin, s.row_end);
      return true;
    }
    if (w.scales && !copy_scales(w, rows + size_t(s.row_begin) * row_bytes, s.row_begin, s.row_end)) return false;
    const size_t from = offset(w, s.row_begin), to = offset(w, s.row_end);
    kernels_.pack(w.type, w.rows, w.cols, rows, staging - from, s.row_begin, s.row_end);
    return kernels_.load(kernels_.device, data + from, staging, to - from);
  }

  void* embedding_at_ = nullptr;  // on a device: where the embedding's bytes go
  static constexpr size_t kSharedBytes = size_t{1} << 20, kSliceBytes = size_t{8} << 20;
  void* shared_at_ = nullptr;
  size_t shared_left_ = 0;
  std::shared_ptr<const format::WeightFile> file_;
  ModelSpec& spec_;
  const kernels::KernelTable& kernels_;
  Weights weights_;
  std::vector<PackJob> jobs_;
  std::map<std::vector<int32_t>, const int32_t*> orders_;
};

}  // namespace

size_t packed_bytes(const kernels::KernelTable& kernels, const format::TensorEntry& t) {
  const WeightType type = t.weight_format->type;
  const bool apart = kernels.scales_apart && kernels.scales_apart(type);
  return kernels.packed_bytes(type, int(t.rows()), int(t.cols())) + (apart ? size_t(t.elements() / scale_cols(t)) * sizeof(float) : 0);
}

Result<Weights> load_weights(std::shared_ptr<const format::WeightFile> file, ModelSpec& spec,
                             const kernels::KernelTable& kernels, int threads,
                             const std::function<void(size_t, size_t)>& progress) {
  return Loader(std::move(file), spec, kernels).load(std::max(1, threads), progress);
}

Result<Weights> load_layer_weights(std::shared_ptr<const format::WeightFile> file, ModelSpec& spec, const kernels::KernelTable& kernels, int threads,
                                   int layer) {
  return Loader(std::move(file), spec, kernels).load_one(std::max(1, threads), layer);
}

}  // namespace sluice::model
