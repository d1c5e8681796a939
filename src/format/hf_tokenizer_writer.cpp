#include <algorithm>
#include <numeric>
#include <string_view>
#include <unordered_map>

#include "format/hf_pre_tokenizer.h"
#include "format/hf_tokenizer.h"
#include "format/shown.h"

namespace sluice::format {
namespace {

constexpr int64_t kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5;
constexpr const char* kSpaceMark = "\xE2\x96\x81";  // U+2581
constexpr double kUnreachable = -1e8;

class TokenizerWriter {
 public:
  TokenizerWriter(const std::string& folder, const Metadata& m) : folder_(folder), m_(m) {}

  Status write() {
    SLUICE_ASSIGN(const std::string model, m_.string(kPrefix + "model"));
    if (model != "gpt2" && model != "llama")
      return Error{ErrorCode::kUnsupported, kPrefix + "model: '" + shown(model) + "' cannot be written to tokenizer.json", {}};
    spm_ = model == "llama";
    SLUICE_ASSIGN(tokens_, m_.array<std::string>(kPrefix + "tokens"));
    kinds_.assign(tokens_->size(), kNormal);
    if (m_.has(kPrefix + "token_type")) {
      SLUICE_ASSIGN(const auto* kinds, m_.array<int64_t>(kPrefix + "token_type"));
      if (kinds->size() != tokens_->size()) return bad_file(kPrefix + "token_type: another length than tokens");
      kinds_ = *kinds;
    }
    json_ = {{"version", "1.0"}, {"truncation", nullptr}, {"padding", nullptr}, {"post_processor", nullptr}};
    json_["model"] = {{"type", "BPE"}, {"dropout", nullptr}, {"unk_token", nullptr}, {"continuing_subword_prefix", nullptr},
                      {"end_of_word_suffix", nullptr}, {"fuse_unk", false}, {"byte_fallback", spm_}, {"ignore_merges", false}};
    add_vocab();
    add_added_tokens();
    SLUICE_TRY(spm_ ? add_spm() : add_bpe());
    SLUICE_TRY(add_ids());
    SLUICE_TRY(write_json(folder_ + "/tokenizer.json", json_));
    return write_json(folder_ + "/tokenizer_config.json", config_);
  }

 private:
  inline static const std::string kPrefix = "tokenizer.ggml.";

  void add_vocab() {
    Json vocab = Json::object();
    for (size_t i = 0; i < tokens_->size(); ++i)
      if (kinds_[i] != kUnused) vocab[(*tokens_)[i]] = i;
    json_["model"]["vocab"] = std::move(vocab);
  }
  void add_added_tokens() {
    Json added = Json::array();
    for (size_t i = 0; i < tokens_->size(); ++i)
      if (kinds_[i] == kControl || kinds_[i] == kUnknown || kinds_[i] == kUserDefined)
        added.push_back({{"id", i}, {"content", (*tokens_)[i]}, {"single_word", false}, {"lstrip", false}, {"rstrip", false},
                         {"normalized", false}, {"special", kinds_[i] != kUserDefined}});
    json_["added_tokens"] = std::move(added);
  }

  Status add_bpe() {
    SLUICE_ASSIGN(const auto* merges, m_.array<std::string>(kPrefix + "merges"));
    Json pairs = Json::array();
    for (const std::string& merge : *merges) {
      const size_t space = merge.find(' ', 1);
      if (space == std::string::npos) return bad_file(kPrefix + "merges: an entry is no pair");
      pairs.push_back({merge.substr(0, space), merge.substr(space + 1)});
    }
    const std::string pre = m_.string_or(kPrefix + "pre", "default");
    SLUICE_ASSIGN(PreTokenizerJson steps, pre_tokenizer_json(pre));
    json_["model"]["merges"] = std::move(pairs);
    json_["model"]["ignore_merges"] = steps.ignore_merges;
    json_["normalizer"] = pre == "qwen2" ? Json{{"type", "NFC"}} : Json();
    json_["pre_tokenizer"] = std::move(steps.pre_tokenizer);
    json_["decoder"] = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
    add_bos_ = steps.add_bos;
    return {};
  }

  // SentencePiece as merges: every way to make a token of two others, the tokens of the highest score first.
  Status add_spm() {
    std::vector<double> scores(tokens_->size(), 0.0);
    if (m_.has(kPrefix + "scores")) {
      SLUICE_ASSIGN(const auto* given, m_.array<double>(kPrefix + "scores"));
      if (given->size() != tokens_->size()) return bad_file(kPrefix + "scores: another length than tokens");
      scores = *given;
    }
    std::unordered_map<std::string_view, size_t> ids;
    ids.reserve(tokens_->size() * 2);
    for (size_t i = 0; i < tokens_->size(); ++i)
      if (kinds_[i] == kNormal) ids.emplace((*tokens_)[i], i);
    std::vector<size_t> order(tokens_->size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
    Json merges = Json::array();
    std::vector<std::pair<size_t, size_t>> splits;
    for (size_t i : order) {
      if (kinds_[i] != kNormal || scores[i] < kUnreachable) continue;
      const std::string_view token = (*tokens_)[i];
      splits.clear();
      for (size_t at = 1; at < token.size(); ++at) {
        if ((static_cast<unsigned char>(token[at]) & 0xC0) == 0x80) continue;  // inside a character
        const auto left = ids.find(token.substr(0, at)), right = ids.find(token.substr(at));
        if (left != ids.end() && right != ids.end()) splits.emplace_back(left->second, right->second);
      }
      std::sort(splits.begin(), splits.end());
      for (const auto& [left, right] : splits) merges.push_back({(*tokens_)[left], (*tokens_)[right]});
    }
    json_["model"]["merges"] = std::move(merges);
    json_["model"]["fuse_unk"] = true;
    SLUICE_ASSIGN(const int prefix, m_.flag(kPrefix + "add_space_prefix"));
    const Json spaces{{"type", "Replace"}, {"pattern", {{"String", " "}}}, {"content", kSpaceMark}};
    Json back = {{{"type", "Replace"}, {"pattern", {{"String", kSpaceMark}}}, {"content", " "}}, {{"type", "ByteFallback"}}, {{"type", "Fuse"}}};
    json_["normalizer"] = spaces;
    if (prefix != 0) {
      json_["normalizer"] = {{"type", "Sequence"}, {"normalizers", {{{"type", "Prepend"}, {"prepend", kSpaceMark}}, spaces}}};
      back.push_back({{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}});
    }
    json_["pre_tokenizer"] = nullptr;
    json_["decoder"] = {{"type", "Sequence"}, {"decoders", back}};
    add_bos_ = true;
    return {};
  }

  Result<int64_t> id(const char* key) const {
    SLUICE_ASSIGN(const int64_t i, m_.integer_or(kPrefix + key, -1, -1, int64_t{1} << 32));
    return i < int64_t(tokens_->size()) ? i : -1;
  }

  Status add_ids() {
    config_ = {{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
    static constexpr std::pair<const char*, const char*> kNamed[] = {
        {"bos_token_id", "bos_token"}, {"eos_token_id", "eos_token"}, {"unknown_token_id", "unk_token"}, {"padding_token_id", "pad_token"}};
    for (const auto& [key, name] : kNamed) {
      SLUICE_ASSIGN(const int64_t i, id(key));
      if (i >= 0) config_[name] = (*tokens_)[size_t(i)];
    }
    SLUICE_ASSIGN(const int64_t bos, id("bos_token_id"));
    SLUICE_ASSIGN(const int64_t unknown, id("unknown_token_id"));
    if (unknown >= 0 && spm_) json_["model"]["unk_token"] = (*tokens_)[size_t(unknown)];
    SLUICE_ASSIGN(const int said, m_.flag(kPrefix + "add_bos_token"));
    const bool add_bos = bos >= 0 && (said < 0 ? add_bos_ : said == 1);
    config_["add_bos_token"] = add_bos;
    SLUICE_ASSIGN(const int add_eos, m_.flag(kPrefix + "add_eos_token"));
    config_["add_eos_token"] = add_eos == 1;
    if (add_bos) {
      const std::string& text = (*tokens_)[size_t(bos)];
      const Json first{{"SpecialToken", {{"id", text}, {"type_id", 0}}}}, a{{"Sequence", {{"id", "A"}, {"type_id", 0}}}},
          b{{"Sequence", {{"id", "B"}, {"type_id", 1}}}}, second{{"SpecialToken", {{"id", text}, {"type_id", 1}}}};
      json_["post_processor"] = {{"type", "TemplateProcessing"}, {"single", {first, a}}, {"pair", {first, a, second, b}},
                                 {"special_tokens", {{text, {{"id", text}, {"ids", {bos}}, {"tokens", {text}}}}}}};
    } else if (!spm_) {
      json_["post_processor"] = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", false}, {"use_regex", true}};
    }
    if (const std::string text = m_.string_or("tokenizer.chat_template", ""); !text.empty()) config_["chat_template"] = text;
    return {};
  }

  const std::string& folder_;
  const Metadata& m_;
  const std::vector<std::string>* tokens_ = nullptr;
  std::vector<int64_t> kinds_;
  Json json_, config_;
  bool spm_ = false, add_bos_ = false;
};

}  // namespace

Status write_hf_tokenizer(const std::string& folder, const Metadata& m) { return TokenizerWriter(folder, m).write(); }

}  // namespace sluice::format
