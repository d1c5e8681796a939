// ModelSpec: a decoder-only transformer's hyper-parameters as data. ArchDef: how one architecture's metadata becomes a spec
// (arch/*.cpp, one file an architecture). Immutable; any thread.
#pragma once
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "format/metadata.h"
#include "kernels/abi.h"

namespace sluice::model {

struct ModelSpec {
  std::string architecture, name;
  int num_layers = 0;
  int dim = 0;             // residual stream
  int ffn_dim = 0;
  int q_heads = 0, kv_heads = 0, head_dim = 0;
  int vocab = 0;
  int max_context = 0;     // tokens the model was made for
  float norm_eps = 1e-5f;
  float embed_scale = 1;
  float attention_scale = 0;   // of q.k; 0 = 1/sqrt(head_dim)
  bool gelu = false;           // gated FFN: gelu(tanh) instead of silu
  bool qk_norm = false;        // RMS norm of every q and k head before the rotation
  bool post_norms = false;     // norms after attention and FFN, before the residual addition
  kernels::RopeStyle rope_style = kernels::RopeStyle::kInterleaved;
  int rope_dims = 0;
  double rope_base = 10000, rope_base_local = 10000;
  double rope_scale = 1;       // multiplies positions (1 / linear factor) in global layers
  int window = 0;              // of local layers; 0 = none are local
  std::vector<bool> local;     // [num_layers] uses the window and the local base; empty = none

  bool is_local(int layer) const { return !local.empty() && local[size_t(layer)]; }
  float scale() const;
};

// Limits on what a file may claim; far above any model that runs here.
constexpr int kMaxLayers = 1024, kMaxDim = 1 << 17, kMaxHeads = 1024, kMaxHeadDim = 256, kMaxFfnDim = 1 << 20,
              kMaxVocab = 1 << 22, kMaxContext = 1 << 24;

// Reads the keys that every architecture shares (prefix "ARCH."). Errors: kBadFile naming the key and the limit.
Result<ModelSpec> read_common_spec(const format::Metadata& metadata);
Result<ModelSpec> read_spec(const format::Metadata& metadata);  // dispatches on general.architecture

}  // namespace sluice::model
