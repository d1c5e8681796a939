// HfArch: how a folder of safetensors (Hugging Face's layout) names one architecture's hyper-parameters and tensors, in both
// directions. hf/NAME.cpp defines `hf_NAME`; the build lists them. The other side are GGUF's keys and tensor names, which
// everything above reads. Pure; any thread. Errors: kBadFile and kUnsupported naming the field of config.json.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "format/hf_json.h"
#include "format/metadata.h"

namespace sluice::format {

struct HfName {
  const char* ours;    // "attn_q", of blk.N
  const char* theirs;  // "self_attn.q_proj", of layers.N
};

struct HfArch {
  const char* name;                         // general.architecture
  std::span<const char* const> model_types; // of config.json; the first is written
  const char* class_name;                   // architectures[0]
  bool interleaved_pairs;  // our rows of q and k pair (2i, 2i + 1) in the rotation, theirs (i, i + head_dim / 2)
  float norm_offset;       // our norms' weights less theirs
  bool tied_by_default;
  const char* activation;  // hidden_act
  std::span<const HfName> layer_names;
  // What differs from read_common_config and write_common_config. config is the text model's part.
  Status (*read)(const Json& config, Metadata& m);
  Status (*write)(const Metadata& m, Json& config);
};

std::span<const HfArch* const> hf_table();
// By model_type; nullptr and the known ones in `known`.
const HfArch* find_hf_arch(const std::string& model_type, std::string& known);
const HfArch* hf_arch_of(const Metadata& m);  // by general.architecture; nullptr: none

// Names of Llama's kin, of which other architectures change some.
#define SLUICE_HF_ATTENTION_NAMES                                                                              \
  {"attn_norm", "input_layernorm"}, {"attn_q", "self_attn.q_proj"}, {"attn_k", "self_attn.k_proj"},            \
      {"attn_v", "self_attn.v_proj"}, {"attn_output", "self_attn.o_proj"}
#define SLUICE_HF_FFN_NAMES {"ffn_gate", "mlp.gate_proj"}, {"ffn_up", "mlp.up_proj"}, {"ffn_down", "mlp.down_proj"}

// Rotation as config.json says it in either spelling (rope_theta and rope_scaling, or rope_parameters), of one layer type.
struct HfRope {
  double theta = 0;          // 0: not given
  std::string type = "default";
  double factor = 1, low_freq_factor = 1, high_freq_factor = 4, original_context = 8192;
};
Result<HfRope> read_rope_config(const Json& config, const char* layer_type);

// What all architectures share. head_dim is in the metadata afterwards, as attention.key_length.
Status read_common_config(const HfArch& arch, const Json& config, Metadata& m);
Status write_common_config(const HfArch& arch, const Metadata& m, Json& config);
// Adds rope.freq_base and rope.scaling.*. Errors: kUnsupported for a type that nothing here runs.
Status put_rope(const HfArch& arch, const HfRope& rope, Metadata& m);

// Llama 3: the divisors of frequencies that its scaling stands for, [head_dim / 2]; empty for other types.
std::vector<float> rope_factors(const HfRope& rope, int head_dim);

}  // namespace sluice::format
