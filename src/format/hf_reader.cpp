// A model folder as a WeightFile: config.json becomes GGUF's keys, names become GGUF's names, and tensors whose rows or values
// differ between the two conventions are made when they are read.
#include <algorithm>
#include <cstring>
#include <deque>
#include <filesystem>
#include <set>

#include "format/hf_arch.h"
#include "format/hf_packing.h"
#include "format/hf_rows.h"
#include "format/hf_shards.h"
#include "format/hf_tokenizer.h"
#include "format/shown.h"
#include "format/weight_file.h"

namespace sluice::format {
namespace {

constexpr int64_t kMaxLayers = 4096, kMaxCols = int64_t{1} << 24, kMaxHeadDim = 4096;

// Left aside without a word: what other programs store beside weights, and what is computed here.
constexpr const char* kIgnored[] = {".inv_freq", ".cos_cached", ".sin_cached", "attn.k_scale", "attn.v_scale", "attn.q_scale", "attn.kv_scale",
                                    ".input_scale", ".output_scale"};

class HfReader {
 public:
  explicit HfReader(std::string folder) : folder_(std::move(folder)) {}

  Result<std::shared_ptr<const WeightFile>> read() {
    SLUICE_ASSIGN(config_, read_json(folder_ + "/config.json", kMaxConfigBytes));
    SLUICE_TRY(find_arch());
    SLUICE_TRY(find_packing());
    SLUICE_ASSIGN(shards_, open_shards(folder_));
    SLUICE_TRY(in_config(read_common_config(*arch_, text_, m_)));
    const std::filesystem::path folder(folder_);
    m_.insert("general.name", (folder.has_filename() ? folder : folder.parent_path()).filename().string());
    const std::string p = std::string(arch_->name) + ".";
    SLUICE_ASSIGN(const int64_t layers, m_.integer(p + "block_count", 1, kMaxLayers));
    SLUICE_ASSIGN(head_dim_, m_.integer(p + "attention.key_length", 2, kMaxHeadDim));
    SLUICE_TRY(find_prefix());
    SLUICE_TRY(add_ends());
    for (int64_t i = 0; i < layers; ++i) SLUICE_TRY(add_layer(i));
    SLUICE_TRY(add_rope_factors());
    SLUICE_TRY(check_leftovers());
    SLUICE_TRY(read_hf_tokenizer(folder_, config_, tensors_.front().rows(), m_));
    return std::shared_ptr<const WeightFile>(
        std::make_shared<WeightFile>(std::move(m_), std::move(tensors_), std::move(shards_.mappings), std::move(owned_)));
  }

 private:
  // Models that see, too, keep the text model's part apart.
  Status find_arch() {
    const Json* text = find_field(config_, "text_config");
    text_ = text ? *text : config_;
    std::string known;
    const std::string type = string_field_or(text_, "model_type", string_field_or(config_, "model_type", ""));
    arch_ = find_hf_arch(type, known);
    if (!arch_) return Error{ErrorCode::kUnsupported, "config.json: model_type: '" + shown(type) + "' is not supported (" + known + " are)", {}};
    return {};
  }
  Status find_packing() {
    const Json* q = find_field(config_, "quantization_config");
    if (!q) q = find_field(text_, "quantization_config");
    if (!q) return {};
    std::string known;
    for (const HfPacking* p : packings_table()) {
      if (p->reads(*q)) packing_ = p;
      known += std::string(known.empty() ? "" : ", ") + p->name;
    }
    quantization_ = *q;
    if (packing_) return {};
    return Error{ErrorCode::kUnsupported, "config.json: quantization_config.quant_method: '" + shown(string_field_or(*q, "quant_method", "")) +
                 "' is not supported (" + known + " are)", {}};
  }
  static Status in_config(Status s) { return s.ok() ? s : Error{s.error().code, "config.json: " + s.error().message, {}}; }

  Status find_prefix() {
    for (const char* p : {"model.", "model.language_model.", "language_model.model.", ""})
      if (shards_.find(std::string(p) + "embed_tokens.weight")) {
        prefix_ = p;
        return {};
      }
    return bad_file("model.embed_tokens.weight: the tensor is missing");
  }

  Status add_ends() {
    SLUICE_TRY(add("token_embd.weight", prefix_ + "embed_tokens.weight"));
    if (tensors_.front().dims.size() != 2) return bad_file(prefix_ + "embed_tokens.weight: no matrix");
    SLUICE_TRY(add("output_norm.weight", prefix_ + "norm.weight"));
    SLUICE_ASSIGN(bool tied, flag_field_or(config_, "tie_word_embeddings", arch_->tied_by_default));
    SLUICE_ASSIGN(tied, flag_field_or(text_, "tie_word_embeddings", tied));
    if (tied) return {};
    const std::string head = shards_.find("lm_head.weight") ? "lm_head" : "language_model.lm_head";
    return add("output.weight", head + ".weight");
  }

  Status add_layer(int64_t i) {
    const std::string ours = "blk." + std::to_string(i) + ".", theirs = prefix_ + "layers." + std::to_string(i) + ".";
    for (const HfName& n : arch_->layer_names) {
      SLUICE_TRY(add(ours + n.ours + ".weight", theirs + n.theirs + ".weight", true));
      SLUICE_TRY(add(ours + n.ours + ".bias", theirs + n.theirs + ".bias", true));
    }
    return {};
  }

  // The tensor as it is stored: quantised in one of the packings, or plain.
  Result<std::optional<TensorEntry>> stored(const std::string& ours, const std::string& theirs) {
    if (packing_ && theirs.ends_with(".weight")) {
      SLUICE_ASSIGN(std::optional<TensorEntry> entry, packing_->read(quantization_, {shards_, theirs.substr(0, theirs.rfind('.')), used_}));
      if (entry) {
        entry->name = ours;
        share_order(*entry);
        return entry;
      }
    }
    const StTensor* t = shards_.find(theirs);
    if (!t) return std::optional<TensorEntry>();
    SLUICE_ASSIGN(TensorEntry entry, plain(ours, *t));
    used_.insert(theirs);
    return std::optional<TensorEntry>(std::move(entry));
  }
  // q, k and v saw the same inputs and have the same order, each its own copy of it.
  void share_order(TensorEntry& t) {
    if (!t.input_order) return;
    if (last_order_ && *last_order_ == *t.input_order) t.input_order = last_order_;
    last_order_ = t.input_order;
  }

  // optional: nothing is wrong where the tensor is missing; the loader knows what it needs.
  Status add(const std::string& ours, const std::string& theirs, bool optional = false) {
    SLUICE_ASSIGN(std::optional<TensorEntry> found, stored(ours, theirs));
    if (!found) return optional ? Status{} : bad_file(shown(theirs) + ": the tensor is missing");
    TensorEntry& entry = *found;
    const bool norm = ours.ends_with("norm.weight");
    const bool heads = arch_->interleaved_pairs && (ours.find("attn_q.") != std::string::npos || ours.find("attn_k.") != std::string::npos);
    if (heads && (entry.dims.back() % head_dim_ || head_dim_ % 2))
      return bad_file(shown(theirs) + ": " + std::to_string(entry.dims.back()) + " rows are no whole heads of " + std::to_string(head_dim_));
    if (entry.dims.size() == 1 && ((norm && arch_->norm_offset != 0) || heads)) change_vector(entry, heads, norm ? arch_->norm_offset : 0);
    else if (heads) entry = reorder_heads(std::move(entry), HeadOrder::kToPairs, head_dim_);
    tensors_.push_back(std::move(entry));
    return {};
  }

  Result<TensorEntry> plain(const std::string& ours, const StTensor& t) const {
    static constexpr std::pair<StDtype, WeightType> kTypes[] = {{StDtype::kF32, WeightType::kF32}, {StDtype::kF16, WeightType::kF16}, {StDtype::kBF16, WeightType::kBF16}};
    TensorEntry entry;
    entry.name = ours;
    for (const auto& [dtype, type] : kTypes)
      if (t.dtype == dtype) entry.weight_format = quant::find_format(type);
    if (!entry.weight_format)
      return Error{ErrorCode::kUnsupported, shown(t.name) + ": " + traits(t.dtype).name + " is not supported here (F32, F16 and BF16 are)", {}};
    entry.type_id = uint32_t(entry.weight_format->type);
    if (t.shape.empty() || t.shape.size() > 2) return bad_file(shown(t.name) + ": " + std::to_string(t.shape.size()) + " dimensions (1 or 2)");
    for (int64_t d : t.shape)
      if (d < 1 || d > kMaxCols) return bad_file(shown(t.name) + ": a dimension of " + std::to_string(d) + " (1.." + std::to_string(kMaxCols) + ")");
    entry.dims.assign(t.shape.rbegin(), t.shape.rend());
    entry.bytes = t.bytes;
    return entry;
  }

  // Norms with the offset that their convention leaves out; biases in the order of their rows.
  void change_vector(TensorEntry& t, bool heads, float offset) {
    const int64_t n = t.dims[0];
    std::vector<float> before(static_cast<size_t>(n));
    decode_rows(t, 0, 1, before.data());
    std::vector<float>& after = owned_->emplace_back(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) {
      const int64_t from = heads ? i / head_dim_ * head_dim_ + head_row(HeadOrder::kToPairs, i % head_dim_, head_dim_) : i;
      after[size_t(i)] = before[size_t(from)] + offset;
    }
    own(t, after);
  }
  static void own(TensorEntry& t, const std::vector<float>& values) {
    t.weight_format = quant::find_format(WeightType::kF32);
    t.type_id = uint32_t(WeightType::kF32);
    t.bytes = {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(float)};
  }

  Status add_rope_factors() {
    SLUICE_ASSIGN(const HfRope rope, read_rope_config(text_, "full_attention"));
    std::vector<float> factors = rope_factors(rope, int(head_dim_));
    if (factors.empty()) return {};
    TensorEntry t;
    t.name = "rope_freqs.weight";
    t.dims = {int64_t(factors.size())};
    own(t, owned_->emplace_back(std::move(factors)));
    tensors_.push_back(std::move(t));
    return {};
  }

  // A tensor of a layer that nothing here reads would be left out of the sums.
  Status check_leftovers() const {
    const std::string layers = prefix_ + "layers.";
    for (const auto& [name, t] : shards_.tensors) {
      if (!name.starts_with(layers) || used_.contains(name)) continue;
      if (std::none_of(std::begin(kIgnored), std::end(kIgnored), [&, &n = name](const char* suffix) { return n.ends_with(suffix); }))
        return Error{ErrorCode::kUnsupported, shown(name) + ": " + arch_->name + " has no place for this tensor", {}};
    }
    return {};
  }

  std::string folder_, prefix_;
  Json config_, text_, quantization_;
  const HfPacking* packing_ = nullptr;
  std::shared_ptr<const std::vector<int32_t>> last_order_;
  const HfArch* arch_ = nullptr;
  int64_t head_dim_ = 0;
  HfShards shards_;
  Metadata m_;
  std::vector<TensorEntry> tensors_;
  std::set<std::string> used_;
  std::shared_ptr<std::deque<std::vector<float>>> owned_ = std::make_shared<std::deque<std::vector<float>>>();
};

}  // namespace

Result<std::shared_ptr<const WeightFile>> open_hf_folder(const std::string& path) {
  auto file = HfReader(path).read();
  if (file.ok() || file.error().message.starts_with(path)) return file;
  return Error{file.error().code, path + ": " + file.error().message, {}};
}

}  // namespace sluice::format
