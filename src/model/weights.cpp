#include "model/weights.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "tensor/buffer.h"

namespace sluice::model {
namespace {

struct PackJob {
  const format::TensorEntry* tensor;
  kernels::PackedWeight* out;
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
    t->weight_format->decode(t->bytes.data(), values.data(), size_t(n));
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
    if (kernels_.load(kernels_.device, to, from, bytes)) return {};
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
    jobs_.push_back({t, out});
    return {};
  }

  Status load_embedding_and_head() {
    const format::TensorEntry* embedding = file_->find("token_embd.weight");
    if (!embedding) return bad_file("token_embd.weight: the tensor is missing");
    if (embedding->rows() > kMaxVocab) return bad_file("token_embd.weight: more than " + std::to_string(kMaxVocab) + " rows");
    spec_.vocab = int(embedding->rows());
    SLUICE_ASSIGN(weights_.embedding, tensor("token_embd.weight", spec_.vocab, spec_.dim));
    const std::span<const uint8_t> table = weights_.embedding->bytes;
    weights_.embedding_data = table.data();
    if (!kernels_.host_memory) {
      SLUICE_ASSIGN(void* data, allocate(table.size()));
      SLUICE_TRY(load_bytes(data, table.data(), table.size()));
      weights_.embedding_data = data;
    }
    SLUICE_TRY(vector("output_norm.weight", spec_.dim, &weights_.output_norm));
    const bool tied = !file_->find("output.weight");
    SLUICE_TRY(matrix(tied ? "token_embd.weight" : "output.weight", spec_.vocab, spec_.dim, &weights_.head));
    if (file_->find("rope_freqs.weight")) {
      SLUICE_ASSIGN(const format::TensorEntry* factors, tensor("rope_freqs.weight", 1, spec_.rope_dims / 2));
      weights_.rope_factors.resize(size_t(spec_.rope_dims / 2));
      factors->weight_format->decode(factors->bytes.data(), weights_.rope_factors.data(), weights_.rope_factors.size());
      for (float f : weights_.rope_factors)
        if (!(f > 0)) return bad_file("rope_freqs.weight: a factor is not above 0");
    }
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

  // Threads take slices of pack_rows x 16 rows, whichever matrix they belong to. Where backend memory is not the host's, a
  // matrix is packed aside and copied over, one after another.
  Status pack(int threads, const std::function<void(size_t, size_t)>& progress) {
    if (!kernels_.host_memory) return pack_and_copy(progress);
    struct Slice { const PackJob* job; int begin, end; };
    std::vector<Slice> slices;
    const int step = kernels_.pack_rows * 16;
    for (const PackJob& job : jobs_) {
      SLUICE_ASSIGN(job.out->data, allocate(job.out->bytes));
      weights_.packed_bytes += job.out->bytes;
      for (int r = 0; r < job.out->rows; r += step) slices.push_back({&job, r, std::min(r + step, job.out->rows)});
    }
    std::atomic<size_t> next{0};
    std::atomic<size_t> done{0};
    auto work = [&](bool reports) {
      for (size_t i; (i = next.fetch_add(1)) < slices.size();) {
        const Slice& s = slices[i];
        kernels_.pack(s.job->out->type, s.job->out->rows, s.job->out->cols, s.job->tensor->bytes.data(),
                      const_cast<void*>(s.job->out->data), s.begin, s.end);
        done += s.job->out->bytes / size_t(s.job->out->rows) * size_t(s.end - s.begin);
        if (reports && progress) progress(done, weights_.packed_bytes);
      }
    };
    std::vector<std::thread> pool;
    for (int t = 1; t < threads; ++t) pool.emplace_back(work, false);
    work(true);
    for (auto& t : pool) t.join();
    if (progress) progress(weights_.packed_bytes, weights_.packed_bytes);
    return {};
  }
  Status pack_and_copy(const std::function<void(size_t, size_t)>& progress) {
    size_t total = 0, largest = 0;
    for (const PackJob& job : jobs_) {
      total += job.out->bytes;
      largest = std::max(largest, job.out->bytes);
    }
    const Buffer staged(largest);
    for (const PackJob& job : jobs_) {
      kernels_.pack(job.out->type, job.out->rows, job.out->cols, job.tensor->bytes.data(), staged.data(), 0, job.out->rows);
      SLUICE_ASSIGN(void* data, allocate(job.out->bytes));
      SLUICE_TRY(load_bytes(data, staged.data(), job.out->bytes));
      job.out->data = data;
      weights_.packed_bytes += job.out->bytes;
      if (progress) progress(weights_.packed_bytes, total);
    }
    return {};
  }

  static constexpr size_t kSharedBytes = size_t{1} << 20;
  void* shared_at_ = nullptr;
  size_t shared_left_ = 0;
  std::shared_ptr<const format::WeightFile> file_;
  ModelSpec& spec_;
  const kernels::KernelTable& kernels_;
  Weights weights_;
  std::vector<PackJob> jobs_;
};

}  // namespace

Result<Weights> load_weights(std::shared_ptr<const format::WeightFile> file, ModelSpec& spec,
                             const kernels::KernelTable& kernels, int threads,
                             const std::function<void(size_t, size_t)>& progress) {
  return Loader(std::move(file), spec, kernels).load(std::max(1, threads), progress);
}

}  // namespace sluice::model
