#include <algorithm>
#include <filesystem>
#include <string_view>
#include <unordered_map>

#include "format/hf_pre_tokenizer.h"
#include "format/hf_tokenizer.h"
#include "format/mapping.h"
#include "format/shown.h"

namespace sluice::format {
namespace {

constexpr int64_t kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6;
constexpr int64_t kMaxRows = int64_t{1} << 22;
constexpr double kUnreachable = -1e9;  // a token that no merge makes

Error bad(std::string what) { return bad_file("tokenizer.json: " + std::move(what)); }
Error unsupported(std::string what) { return {ErrorCode::kUnsupported, "tokenizer.json: " + std::move(what), {}}; }

bool is_byte_name(std::string_view s) { return s.size() == 6 && s.starts_with("<0x") && s.back() == '>'; }

class TokenizerReader {
 public:
  TokenizerReader(const std::string& folder, const Json& config, int64_t rows, Metadata& m) : folder_(folder), config_(config), rows_(rows), m_(m) {}

  Status read() {
    if (rows_ > kMaxRows) return bad_file("embed_tokens.weight: more than " + std::to_string(kMaxRows) + " rows");
    SLUICE_ASSIGN(json_, read_json(folder_ + "/tokenizer.json", kMaxTokenizerBytes));
    SLUICE_ASSIGN(tokenizer_config_, optional_json("tokenizer_config.json"));
    SLUICE_ASSIGN(generation_, optional_json("generation_config.json"));
    const Json* model = find_field(json_, "model");
    const std::string type = model ? string_field_or(*model, "type", "BPE") : "";
    if (type != "BPE") return unsupported("model.type: '" + shown(type) + "' is not supported (BPE is)");
    SLUICE_ASSIGN(spm_, flag_field_or(*model, "byte_fallback", false));
    SLUICE_TRY(read_vocab(*model));
    SLUICE_TRY(read_added());
    SLUICE_TRY(read_merges(*model));
    if (!spm_) {
      SLUICE_TRY(check_normalizer());
      SLUICE_ASSIGN(std::string pre, name_pre_tokenizer(json_));
      m_.insert("tokenizer.ggml.pre", std::move(pre));
    }
    SLUICE_TRY(read_ids(*model));
    SLUICE_TRY(read_chat_template());
    m_.insert("tokenizer.ggml.model", std::string(spm_ ? "llama" : "gpt2"));
    m_.insert("tokenizer.ggml.tokens", std::move(tokens_));
    m_.insert("tokenizer.ggml.token_type", std::move(kinds_));
    return {};
  }

 private:
  Result<Json> optional_json(const char* name) const {
    std::error_code ec;
    if (!std::filesystem::exists(folder_ + "/" + name, ec)) return Json::object();
    return read_json(folder_ + "/" + name, kMaxIndexBytes);
  }

  // False: the id is beyond the embedding, as those of tokens for pictures are.
  Result<bool> put(int64_t id, const std::string& text, int64_t kind) {
    if (id < 0 || id >= kMaxRows) return bad(shown(text) + ": id " + std::to_string(id) + " is outside 0.." + std::to_string(kMaxRows - 1));
    if (id >= rows_) return false;
    tokens_[size_t(id)] = text;
    kinds_[size_t(id)] = kind;
    return true;
  }

  Status read_vocab(const Json& model) {
    tokens_.resize(size_t(rows_));
    kinds_.assign(size_t(rows_), kUnused);
    for (int64_t i = 0; i < rows_; ++i) tokens_[size_t(i)] = "[PAD" + std::to_string(i) + "]";
    const Json* vocab = find_field(model, "vocab");
    if (!vocab || !vocab->is_object()) return bad("model.vocab: an object was expected");
    for (const auto& [text, id] : vocab->items()) {
      if (!id.is_number_integer()) return bad("model.vocab: " + shown(text) + ": an integer was expected");
      SLUICE_ASSIGN(const bool there, put(id.get<int64_t>(), text, spm_ && is_byte_name(text) ? kByte : kNormal));
      (void)there;
    }
    return {};
  }

  Status read_added() {
    const Json* added = find_field(json_, "added_tokens");
    if (!added) return {};
    if (!added->is_array()) return bad("added_tokens: a list was expected");
    for (const Json& t : *added) {
      SLUICE_ASSIGN(const int64_t id, integer_field(t, "id", 0, kMaxRows - 1));
      SLUICE_ASSIGN(const bool special, flag_field_or(t, "special", false));
      const std::string text = string_field_or(t, "content", "");
      SLUICE_ASSIGN(const bool there, put(id, text, special ? kControl : kUserDefined));
      if (there) added_.emplace(text, id);
    }
    return {};
  }

  Status read_merges(const Json& model) {
    const Json* list = find_field(model, "merges");
    if (!list || !list->is_array()) return bad("model.merges: a list was expected");
    std::vector<std::string> merges;
    std::unordered_map<std::string_view, size_t> ids;
    std::vector<double> scores;
    if (spm_) {
      scores.assign(tokens_.size(), kUnreachable);
      ids.reserve(tokens_.size() * 2);
      for (size_t i = 0; i < tokens_.size(); ++i) ids.emplace(tokens_[i], i);
    } else {
      merges.reserve(list->size());
    }
    std::string left, right;
    double rank = 0;
    for (const Json& merge : *list) {
      if (!split_merge(merge, left, right)) return bad("model.merges: entry " + std::to_string(int64_t(rank)) + " is no pair of texts");
      if (spm_) {
        // The best of a token's merges is its score: SentencePiece ranks what results, not the pair.
        const auto it = ids.find(left + right);
        if (it != ids.end() && scores[it->second] == kUnreachable) scores[it->second] = -rank;
      } else {
        merges.push_back(left + " " + right);
      }
      ++rank;
    }
    if (spm_) m_.insert("tokenizer.ggml.scores", std::move(scores));
    else m_.insert("tokenizer.ggml.merges", std::move(merges));
    return {};
  }
  static bool split_merge(const Json& merge, std::string& left, std::string& right) {
    if (merge.is_array()) {
      if (merge.size() != 2 || !merge[0].is_string() || !merge[1].is_string()) return false;
      left = merge[0].get_ref<const std::string&>();
      right = merge[1].get_ref<const std::string&>();
      return !left.empty() && !right.empty();
    }
    if (!merge.is_string()) return false;
    const auto& text = merge.get_ref<const std::string&>();
    const size_t space = text.find(' ', 1);
    if (space == std::string::npos || space + 1 == text.size()) return false;
    left.assign(text, 0, space);
    right.assign(text, space + 1);
    return true;
  }

  // NFC is what Qwen asks for: text that is composed already, as nearly all is, passes unchanged.
  Status check_normalizer() const {
    const Json* n = find_field(json_, "normalizer");
    const std::string type = n ? string_field_or(*n, "type", "?") : "NFC";
    const Json* parts = n ? find_field(*n, "normalizers") : nullptr;
    if (type == "NFC" || (type == "Sequence" && parts && parts->empty())) return {};
    return unsupported("normalizer: '" + shown(type) + "' is not supported (none and NFC are)");
  }

  int64_t find(const std::string& text) const {
    if (const auto it = added_.find(text); it != added_.end()) return it->second;
    const auto it = std::find(tokens_.begin(), tokens_.end(), text);
    return it == tokens_.end() ? -1 : it - tokens_.begin();
  }
  // A token that tokenizer_config.json names, as a text or an object.
  int64_t named(const char* key) const {
    const Json* v = find_field(tokenizer_config_, key);
    if (!v) return -1;
    const std::string text = v->is_string() ? v->get<std::string>() : string_field_or(*v, "content", "");
    return text.empty() ? -1 : find(text);
  }
  // Ids under a key that holds one or a list.
  static void add_ids(const Json& object, const char* key, std::vector<int64_t>& out) {
    const Json* v = find_field(object, key);
    if (!v) return;
    const auto add = [&](const Json& id) {
      if (id.is_number_integer() && out.size() < 64 && std::find(out.begin(), out.end(), id.get<int64_t>()) == out.end()) out.push_back(id.get<int64_t>());
    };
    if (v->is_array()) {
      for (const Json& id : *v) add(id);
    } else {
      add(*v);
    }
  }
  void put_id(const char* key, int64_t id) {
    if (id >= 0 && id < rows_) m_.insert(std::string("tokenizer.ggml.") + key, id);
  }

  Status read_ids(const Json& model) {
    int64_t bos = named("bos_token");
    std::vector<int64_t> begins, ends;
    add_ids(config_, "bos_token_id", begins);
    if (bos < 0 && !begins.empty()) bos = begins.front();
    put_id("bos_token_id", bos);
    if (const int64_t eos = named("eos_token"); eos >= 0) ends.push_back(eos);
    add_ids(config_, "eos_token_id", ends);
    add_ids(generation_, "eos_token_id", ends);
    static constexpr const char* kEnds[] = {"eos_token_id", "eot_token_id", "eom_token_id"};
    for (size_t i = 0; i < ends.size() && i < 3; ++i) put_id(kEnds[i], ends[i]);
    put_id("padding_token_id", named("pad_token"));
    int64_t unknown = named("unk_token");
    if (unknown < 0) unknown = find(string_field_or(model, "unk_token", "\1"));
    put_id("unknown_token_id", unknown);
    if (spm_ && unknown >= 0 && unknown < rows_) kinds_[size_t(unknown)] = kUnknown;
    SLUICE_ASSIGN(const bool add_bos, flag_field_or(tokenizer_config_, "add_bos_token", adds(bos)));
    SLUICE_ASSIGN(const bool add_eos, flag_field_or(tokenizer_config_, "add_eos_token", false));
    m_.insert("tokenizer.ggml.add_bos_token", add_bos);
    m_.insert("tokenizer.ggml.add_eos_token", add_eos);
    if (spm_) m_.insert("tokenizer.ggml.add_space_prefix", prepends_space());
    return {};
  }
  // Does the post-processor begin a text with this token?
  bool adds(int64_t bos) const {
    const Json* post = find_field(json_, "post_processor");
    if (!post || bos < 0 || bos >= rows_) return false;
    const auto begins = [&](const Json& p) {
      const Json* single = find_field(p, "single");
      if (!single || !single->is_array() || single->empty()) return false;
      const Json* token = find_field(single->front(), "SpecialToken");
      return token && string_field_or(*token, "id", "") == tokens_[size_t(bos)];
    };
    if (const Json* parts = find_field(*post, "processors"); parts && parts->is_array()) return std::any_of(parts->begin(), parts->end(), begins);
    return begins(*post);
  }
  bool prepends_space() const {
    const auto one = [](const Json& step) {
      const std::string type = string_field_or(step, "type", "");
      if (type == "Prepend") return true;
      if (type != "Metaspace") return false;
      const Json* old = find_field(step, "add_prefix_space");
      return string_field_or(step, "prepend_scheme", old && *old == false ? "never" : "always") != "never";
    };
    for (const auto& [part, list] : {std::pair{"normalizer", "normalizers"}, {"pre_tokenizer", "pretokenizers"}}) {
      const Json* p = find_field(json_, part);
      if (!p) continue;
      if (one(*p)) return true;
      if (const Json* steps = find_field(*p, list); steps && steps->is_array() && std::any_of(steps->begin(), steps->end(), one)) return true;
    }
    return false;
  }

  Status read_chat_template() {
    std::error_code ec;
    const std::string file = folder_ + "/chat_template.jinja";
    std::string text;
    if (std::filesystem::exists(file, ec)) {
      SLUICE_ASSIGN(const Mapping mapping, Mapping::open(file));
      if (mapping.bytes().size() > kMaxConfigBytes) return bad_file("chat_template.jinja: over " + std::to_string(kMaxConfigBytes) + " bytes");
      text.assign(mapping.bytes().begin(), mapping.bytes().end());
    } else if (const Json* t = find_field(tokenizer_config_, "chat_template"); t && t->is_string()) {
      text = t->get<std::string>();
    } else if (t && t->is_array()) {
      for (const Json& one : *t)
        if (text.empty() || string_field_or(one, "name", "") == "default") text = string_field_or(one, "template", "");
    }
    if (!text.empty()) m_.insert("tokenizer.chat_template", std::move(text));
    return {};
  }

  const std::string& folder_;
  const Json& config_;
  const int64_t rows_;
  Metadata& m_;
  Json json_, tokenizer_config_, generation_;
  bool spm_ = false;
  std::vector<std::string> tokens_;
  std::vector<int64_t> kinds_;
  std::unordered_map<std::string, int64_t> added_;
};

}  // namespace

Status read_hf_tokenizer(const std::string& folder, const Json& config, int64_t rows, Metadata& m) {
  return TokenizerReader(folder, config, rows, m).read();
}

}  // namespace sluice::format
