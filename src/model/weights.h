// Weights: a model's tensors, checked against its spec by name and shape, and packed into a backend's tile order.
// Immutable after load; any thread. Norms, biases and rotary factors are kept as float32. Everything is in backend memory.
#pragma once
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "format/weight_file.h"
#include "kernels/abi.h"
#include "kernels/backend_buffer.h"
#include "model/model_spec.h"

namespace sluice::model {

struct LayerWeights {
  kernels::PackedWeight q, k, v, o, gate, up, down;
  const float *attn_norm = nullptr, *ffn_norm = nullptr;
  const float *q_bias = nullptr, *k_bias = nullptr, *v_bias = nullptr, *o_bias = nullptr;
  const float *q_norm = nullptr, *k_norm = nullptr;
  const float *post_attn_norm = nullptr, *post_ffn_norm = nullptr;
};

struct Weights {
  std::vector<LayerWeights> layers;
  kernels::PackedWeight head;
  const float* output_norm = nullptr;
  const format::TensorEntry* embedding = nullptr;  // in the file's own layout
  const void* embedding_data = nullptr;            // its bytes in backend memory: on a host, the file's mapping
  std::vector<float> rope_factors;                 // divides frequencies; empty = none
  size_t packed_bytes = 0;

  std::shared_ptr<const format::WeightFile> file;  // the embedding is read from its mapping
  std::vector<kernels::BackendBuffer> buffers;
};

// Inputs of a row that share a scale, of fp8.
int64_t scale_cols(const format::TensorEntry& tensor);
// What a matrix takes in backend memory; 0: the backend has no kernel for it.
size_t packed_bytes(const kernels::KernelTable& kernels, const format::TensorEntry& tensor);

// Sets spec.vocab and checks every tensor's shape and that the backend has a kernel for its type.
// Errors: kBadFile naming the tensor; kUnsupported naming op, format and backend; kUnavailable when the device has no room.
// progress(done_bytes, total_bytes) may be null; called from one thread.
Result<Weights> load_weights(std::shared_ptr<const format::WeightFile> file, ModelSpec& spec,
                             const kernels::KernelTable& kernels, int threads,
                             const std::function<void(size_t, size_t)>& progress);

// One layer alone, the others empty, no embedding and no head: for walking a model layer by layer. The file's pages stay as they are.
Result<Weights> load_layer_weights(std::shared_ptr<const format::WeightFile> file, ModelSpec& spec, const kernels::KernelTable& kernels, int threads, int layer);

}  // namespace sluice::model
