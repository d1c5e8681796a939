#include "format/hf_writer.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/half.h"
#include "format/hf_arch.h"
#include "format/hf_rows.h"
#include "format/hf_tokenizer.h"
#include "format/shown.h"

namespace sluice::format {
namespace {

constexpr int64_t kRowsAtOnce = 64;

bool is_float(const TensorEntry& t) { return t.weight_format->block_elements == 1; }

StDtype dtype_of(const TensorEntry& t, const HfWriteOptions& o) {
  if (t.dims.size() == 1) return StDtype::kF32;  // norms and biases lose nothing
  if (!is_float(t) || o.convert_floats) return o.dtype;
  return t.weight_format->type == WeightType::kF32 ? StDtype::kF32 : t.weight_format->type == WeightType::kF16 ? StDtype::kF16 : StDtype::kBF16;
}

void append(StDtype dtype, float v, std::vector<uint8_t>& out) {
  const auto put = [&](auto bits) {
    const size_t at = out.size();
    out.resize(at + sizeof bits);
    std::memcpy(out.data() + at, &bits, sizeof bits);
  };
  if (dtype == StDtype::kF32) put(v);
  else put(dtype == StDtype::kF16 ? float_to_half(v) : float_to_bf16(v));
}

class HfWriter {
 public:
  HfWriter(const std::string& folder, const Metadata& m, std::span<const TensorEntry> tensors, const HfWriteOptions& options)
      : folder_(folder), m_(m), tensors_(tensors), options_(options) {}

  Status write() {
    arch_ = hf_arch_of(m_);
    if (!arch_)
      return Error{ErrorCode::kUnsupported, "general.architecture: '" + shown(m_.string_or("general.architecture", "")) + "' cannot be written as config.json", {}};
    SLUICE_TRY(write_common_config(*arch_, m_, config_));
    const std::string p = std::string(arch_->name) + ".";
    SLUICE_ASSIGN(const int64_t heads, m_.integer(p + "attention.head_count", 1, 1 << 20));
    SLUICE_ASSIGN(const int64_t dim, m_.integer(p + "embedding_length", 1, 1 << 30));
    SLUICE_ASSIGN(head_dim_, m_.integer_or(p + "attention.key_length", dim / heads, 2, 4096));
    for (const TensorEntry& t : tensors_) SLUICE_TRY(add(t));
    SLUICE_TRY(add_ids());
    std::error_code ec;
    std::filesystem::create_directories(folder_, ec);
    if (ec) return Error{ErrorCode::kIo, folder_ + ": " + ec.message(), {}};
    // What an earlier run left must neither make this folder look complete nor be read beside it.
    for (const char* name : {"config.json", "model.safetensors", "model.safetensors.index.json"}) std::filesystem::remove(folder_ + "/" + name, ec);
    SLUICE_TRY(write_hf_tokenizer(folder_, m_));
    SLUICE_TRY(write_tensors());
    return write_json(folder_ + "/config.json", config_);
  }

 private:
  Status add(const TensorEntry& t) {
    if (!t.weight_format) return Error{ErrorCode::kUnsupported, shown(t.name) + ": weight type " + std::to_string(t.type_id) + " is not supported", {}};
    if (t.name == "rope_freqs.weight") return add_rope_scaling(t);
    SLUICE_ASSIGN(const std::string theirs, their_name(t.name));
    if (t.name == "token_embd.weight") config_["vocab_size"] = t.rows();
    if (t.name == "output.weight") config_["tie_word_embeddings"] = false;
    const bool heads = arch_->interleaved_pairs && (t.name.find("attn_q.") != std::string::npos || t.name.find("attn_k.") != std::string::npos);
    if (t.name.find("attn_") != std::string::npos && t.name.ends_with(".bias") && config_.contains("attention_bias")) config_["attention_bias"] = true;
    const auto rows = [heads, d = head_dim_](int64_t i) { return heads ? i / d * d + head_row(HeadOrder::kToHalves, i % d, d) : i; };
    if (heads && t.dims.back() % head_dim_) return bad_file(shown(t.name) + ": its rows are no whole heads of " + std::to_string(head_dim_));
    if (options_.layout && t.dims.size() == 2 && t.name.starts_with("blk.")) {
      std::vector<StOutput> outputs = options_.layout->outputs(t, theirs.substr(0, theirs.rfind('.')), rows);
      for (StOutput& o : outputs) outputs_.push_back(std::move(o)), names_.push_back(t.name);
      if (!outputs.empty()) return {};
    }
    if (t.dims.size() == 1) add_vector(t, theirs, rows, t.name.ends_with("norm.weight") ? arch_->norm_offset : 0);
    else add_matrix(t, theirs, rows);
    names_.push_back(t.name);
    return {};
  }

  Result<std::string> their_name(const std::string& ours) const {
    if (ours == "token_embd.weight") return std::string("model.embed_tokens.weight");
    if (ours == "output_norm.weight") return std::string("model.norm.weight");
    if (ours == "output.weight") return std::string("lm_head.weight");
    const size_t number = ours.find('.') + 1, name = ours.find('.', number) + 1, part = ours.rfind('.');
    if (ours.starts_with("blk.") && name != 0 && part > name)
      for (const HfName& n : arch_->layer_names)
        if (ours.substr(name, part - name) == n.ours) return "model.layers." + ours.substr(number, name - number) + n.theirs + ours.substr(part);
    return Error{ErrorCode::kUnsupported, shown(ours) + ": " + arch_->name + " has no name for this tensor in a folder of safetensors", {}};
  }

  void add_vector(const TensorEntry& t, const std::string& name, const std::function<int64_t(int64_t)>& rows, float offset) {
    outputs_.push_back({name, StDtype::kF32, {t.dims[0]}, [&t, rows, offset](const StSink& sink) -> Status {
      std::vector<float> values(static_cast<size_t>(t.dims[0]));
      decode_rows(t, 0, 1, values.data());
      std::vector<uint8_t> bytes;
      for (int64_t i = 0; i < t.dims[0]; ++i) append(StDtype::kF32, values[size_t(rows(i))] - offset, bytes);
      sink(bytes);
      return {};
    }});
  }

  void add_matrix(const TensorEntry& t, const std::string& name, const std::function<int64_t(int64_t)>& rows) {
    const StDtype dtype = dtype_of(t, options_);
    const bool copy = is_float(t) && !t.input_order && traits(dtype).bytes == t.weight_format->block_bytes && !options_.convert_floats;
    outputs_.push_back({name, dtype, {t.rows(), t.cols()}, [&t, rows, dtype, copy](const StSink& sink) -> Status {
      std::vector<uint8_t> bytes(copy ? quant::row_bytes(*t.weight_format, size_t(t.cols())) : 0);
      std::vector<float> values(static_cast<size_t>(t.cols()));
      for (int64_t i = 0; i < t.rows(); ++i) {
        if (copy) {
          read_rows(t, rows(i), rows(i) + 1, bytes.data());
          sink(bytes);
          continue;
        }
        decode_rows(t, rows(i), rows(i) + 1, values.data());
        if (i % kRowsAtOnce == 0) bytes.clear();
        for (float v : values) append(dtype, v, bytes);
        if (i % kRowsAtOnce == kRowsAtOnce - 1 || i + 1 == t.rows()) sink(bytes);
      }
      return {};
    }});
  }

  // Llama 3's divisors stand in config.json as what they are made of: the published values, if these make the same ones.
  Status add_rope_scaling(const TensorEntry& t) {
    std::vector<float> have(static_cast<size_t>(t.elements()));
    decode_rows(t, 0, t.rows(), have.data());
    HfRope rope;
    SLUICE_ASSIGN(rope.theta, m_.number_or(std::string(arch_->name) + ".rope.freq_base", 10000.0));
    rope.type = "llama3";
    rope.factor = std::round(double(*std::max_element(have.begin(), have.end())));
    const std::vector<float> want = rope.factor >= 1 ? rope_factors(rope, int(head_dim_)) : std::vector<float>();
    bool same = want.size() == have.size();
    for (size_t i = 0; same && i < want.size(); ++i) same = std::abs(want[i] - have[i]) <= 1e-4f * want[i];
    if (!same) return Error{ErrorCode::kUnsupported, "rope_freqs.weight: not the factors of Llama 3, which alone config.json can say", {}};
    config_["rope_scaling"] = {{"rope_type", "llama3"}, {"factor", rope.factor}, {"low_freq_factor", rope.low_freq_factor},
                               {"high_freq_factor", rope.high_freq_factor}, {"original_max_position_embeddings", int64_t(rope.original_context)}};
    return {};
  }

  Status add_ids() {
    if (!config_.contains("vocab_size")) return bad_file("token_embd.weight: the tensor is missing");
    if (!config_.contains("tie_word_embeddings")) config_["tie_word_embeddings"] = true;
    const auto first = std::find_if(outputs_.begin(), outputs_.end(), [](const StOutput& o) { return o.name == "model.embed_tokens.weight"; });
    config_["torch_dtype"] = first->dtype == StDtype::kF32 ? "float32" : first->dtype == StDtype::kF16 ? "float16" : "bfloat16";
    if (options_.layout) config_["quantization_config"] = options_.layout->quantization_config;
    Json ends = Json::array();
    for (const char* key : {"eos_token_id", "eot_token_id", "eom_token_id"}) {
      SLUICE_ASSIGN(const int64_t id, m_.integer_or(std::string("tokenizer.ggml.") + key, -1, -1, int64_t{1} << 32));
      if (id >= 0) ends.push_back(id);
    }
    SLUICE_ASSIGN(const int64_t bos, m_.integer_or("tokenizer.ggml.bos_token_id", -1, -1, int64_t{1} << 32));
    if (bos >= 0) config_["bos_token_id"] = bos;
    if (!ends.empty()) config_["eos_token_id"] = ends.front();
    generation_ = Json::object();
    if (bos >= 0) generation_["bos_token_id"] = bos;
    if (!ends.empty()) generation_["eos_token_id"] = ends;
    return {};
  }

  Status write_tensors() {
    SLUICE_TRY(write_json(folder_ + "/generation_config.json", generation_));
    std::vector<std::pair<size_t, size_t>> shards;  // ranges of outputs
    uint64_t total = 0, in_shard = 0;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const uint64_t bytes = outputs_[i].bytes();
      if (shards.empty() || in_shard + bytes > options_.shard_bytes) {
        shards.emplace_back(i, i);
        in_shard = 0;
      }
      shards.back().second = i + 1;
      in_shard += bytes;
      total += bytes;
    }
    if (shards.size() == 1) return write_shards(shards, {"model.safetensors"});
    std::vector<std::string> names;
    Json map = Json::object();
    for (size_t s = 0; s < shards.size(); ++s) {
      char name[64];
      std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", s + 1, shards.size());
      names.emplace_back(name);
      for (size_t i = shards[s].first; i < shards[s].second; ++i) map[outputs_[i].name] = name;
    }
    SLUICE_TRY(write_shards(shards, names));
    return write_json(folder_ + "/model.safetensors.index.json", {{"metadata", {{"total_size", total}}}, {"weight_map", map}});
  }

  // With a fingerprint no file gets its name before all are whole, so that a run that goes on finds everything of the one before.
  Status write_shards(const std::vector<std::pair<size_t, size_t>>& shards, const std::vector<std::string>& names) {
    const auto tensors = [&](size_t s) { return std::span<const StOutput>(outputs_).subspan(shards[s].first, shards[s].second - shards[s].first); };
    if (options_.fingerprint == 0) {
      for (size_t s = 0; s < shards.size(); ++s) SLUICE_TRY(write_safetensors(folder_ + "/" + names[s], tensors(s)));
      return {};
    }
    HfProgress own, &progress = options_.progress ? *options_.progress : own;
    progress = {};
    std::vector<StPart> parts;
    for (size_t s = 0; s < shards.size(); ++s) {
      SLUICE_ASSIGN(StPart part, StPart::open(folder_ + "/" + names[s], tensors(s), options_.fingerprint));
      progress.resumed = progress.resumed || part.resumed();
      for (size_t i = shards[s].first; i < shards[s].second; ++i) progress.missing[names_[i]] += part.done(i - shards[s].first) ? 0 : 1;
      parts.push_back(std::move(part));
    }
    for (size_t s = 0; s < parts.size(); ++s) SLUICE_TRY(parts[s].write([&](size_t i) { --progress.missing[names_[shards[s].first + i]]; }));
    for (StPart& part : parts) SLUICE_TRY(part.finish());
    return {};
  }

  const std::string& folder_;
  const Metadata& m_;
  std::span<const TensorEntry> tensors_;
  const HfWriteOptions& options_;
  const HfArch* arch_ = nullptr;
  int64_t head_dim_ = 0;
  Json config_, generation_;
  std::vector<StOutput> outputs_;
  std::vector<std::string> names_;  // ours, of each output
};

}  // namespace

Status write_hf_folder(const std::string& folder, const Metadata& metadata, std::span<const TensorEntry> tensors, const HfWriteOptions& options) {
  return HfWriter(folder, metadata, tensors, options).write();
}

}  // namespace sluice::format
