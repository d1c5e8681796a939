// Model: immutable weights and the forward pass of a decoder-only transformer over a backend's kernels.
// forward() may be called by one thread at a time for each kernels::Context and Activations.
#pragma once
#include <functional>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "kernels/abi.h"
#include "kernels/backend_buffer.h"
#include "model/model_spec.h"
#include "model/weights.h"

namespace sluice::model {

// Scratch of one forward pass of at most max_tokens tokens and max_rows rows of logits at a time, in backend memory.
// Not ok(): the device has no room.
class Activations {
 public:
  Activations(const kernels::KernelTable& kernels, const ModelSpec& spec, int max_tokens, int max_rows);
  bool ok() const { return buffer_.ok(); }
  float *x, *qkv, *attn, *ffn, *tmp, *rows, *logits;  // [T, dim] [T, (H+2G)D] [T, HD] [T, 2F] [T, dim] [R, dim] [R, V]
  int max_tokens, max_rows;
  size_t bytes() const { return buffer_.bytes(); }

 private:
  kernels::BackendBuffer buffer_;
};

// cos and sin of every position's rotation, one pair of tables a rotary base.
struct RopeTables {
  kernels::BackendBuffer global_cos, global_sin, local_cos, local_sin;
};

size_t rope_bytes(const ModelSpec& spec, int max_context);

// Sees every product of a layer before it runs (calibration reads its inputs). false: it need not run.
using LinearTap = std::function<bool(const kernels::LinearArgs&)>;

class Model {
 public:
  // threads: for the rotary tables.
  Model(ModelSpec spec, Weights weights, const kernels::KernelTable* kernels, int max_context, int threads = 1);

  const ModelSpec& spec() const { return spec_; }
  const Weights& weights() const { return weights_; }
  const kernels::KernelTable& kernels() const { return *kernels_; }

  // False: the device had no room for the rotary tables.
  bool ok() const { return ok_; }

  // Runs all layers for the batch; the residual stream is left in activations.x. caches: one a layer. token_ids, the
  // batch's arrays and token_rows are backend memory. sampled: what negative token ids refer to (kernels::EmbedArgs).
  void forward(kernels::Context* context, Activations& a, const int32_t* token_ids, const int32_t* sampled,
               const kernels::BatchView& batch, std::span<const kernels::CacheView> caches) const;
  // One layer of the same over a.x, for those who hold one layer's weights at a time. tap may be null.
  void run_layer(kernels::Context* context, Activations& a, int layer, const kernels::BatchView& batch, const kernels::CacheView& cache,
                 const LinearTap* tap = nullptr) const;
  // Layers that are like none before: in their weights' types, or in what they attend to.
  std::vector<int> unlike_layers() const;
  // Logits of the given rows of x (at most max_rows) into activations.logits.
  void head(kernels::Context* context, Activations& a, const int32_t* token_rows, int num_rows) const;

 private:
  DType between(const kernels::Context* context, std::initializer_list<const kernels::PackedWeight*> weights, int num_tokens) const;
  void attention_block(kernels::Context* context, Activations& a, int layer, const kernels::BatchView& batch,
                       const kernels::CacheView& cache, const LinearTap* tap) const;
  void ffn_block(kernels::Context* context, Activations& a, int layer, int num_tokens, const LinearTap* tap) const;
  void linear(kernels::Context* context, const kernels::LinearArgs& args, const LinearTap* tap) const;

  ModelSpec spec_;
  Weights weights_;
  const kernels::KernelTable* kernels_;
  RopeTables rope_;
  bool ok_ = true;
};

}  // namespace sluice::model
