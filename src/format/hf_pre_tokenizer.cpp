#include "format/hf_pre_tokenizer.h"

#include <string_view>
#include <vector>

#include "format/shown.h"

namespace sluice::format {
namespace {

#define SPACES "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define ENDINGS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LETTERS_2 "[^\\r\\n\\p{L}\\p{N}]?"
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"

// Steps in their order: a regex whose matches are pieces, kDigits, or kByteRegex (the byte-level step's own).
constexpr std::string_view kDigits = "<digits>", kByteRegex = "<bytes>";
constexpr std::string_view kLlama3 = ENDINGS "|" LETTERS_2 "\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES;
constexpr std::string_view kQwen2 = ENDINGS "|" LETTERS_2 "\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|" SPACES;
constexpr std::string_view kQwen35 = ENDINGS "|" LETTERS_2 "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" SPACES;
constexpr std::string_view kTekken = LETTERS_2 UPPER "*" LOWER "+|" LETTERS_2 UPPER "+" LOWER "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES;
constexpr std::string_view kGpt4o = LETTERS_2 UPPER "*" LOWER "+" ENDINGS "?|" LETTERS_2 UPPER "+" LOWER "*" ENDINGS
                                    "?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" SPACES;
#undef SPACES
#undef ENDINGS
#undef LETTERS_2
#undef UPPER
#undef LOWER

struct Row {
  const char* name;
  std::string_view aliases;  // between spaces
  bool ignore_merges;  // such vocabularies begin texts with BOS, too, where they do not say otherwise
  std::string_view steps[2];
};
// The first row that fits names a vocabulary.
constexpr Row kRows[] = {
    {"gpt-2", " gpt2 phi-2 mpt olmo jais gigachat mellum trillion ", false, {kByteRegex}},
    {"llama-bpe", " llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 ", true, {kLlama3}},
    {"smaug-bpe", " dbrx glm4 chatglm-bpe ", false, {kLlama3}},
    {"qwen2", " deepseek-r1-qwen megrez stablelm2 hunyuan solar-open grok-2 kormo ", false, {kQwen2}},
    {"qwen35", " ", false, {kQwen35}},
    {"smollm", " starcoder refact command-r codeshell exaone minerva-7b mellum2 ", false, {kDigits, kByteRegex}},
    {"tekken", " ", true, {kTekken}},
    {"gpt-4o", " llama4 kanana2 minimax-m2 ", false, {kGpt4o}},
};

Error unsupported(std::string what) { return {ErrorCode::kUnsupported, "tokenizer.json: pre_tokenizer: " + std::move(what), {}}; }

Status read_step(const Json& step, std::vector<std::string>& out) {
  const std::string type = string_field_or(step, "type", "");
  if (type == "Sequence") {
    const Json* inner = find_field(step, "pretokenizers");
    if (!inner || !inner->is_array() || inner->size() > 16) return unsupported("a sequence of more than 16 steps, or of none");
    for (const Json& s : *inner) {
      if (string_field_or(s, "type", "") == "Sequence") return unsupported("a sequence within a sequence");
      SLUICE_TRY(read_step(s, out));
    }
    return {};
  }
  if (type == "ByteLevel") {
    SLUICE_ASSIGN(const bool prefix, flag_field_or(step, "add_prefix_space", false));
    SLUICE_ASSIGN(const bool regex, flag_field_or(step, "use_regex", true));
    if (prefix) return unsupported("add_prefix_space is not supported");
    if (regex) out.emplace_back(kByteRegex);
    return {};
  }
  if (type == "Digits") {
    SLUICE_ASSIGN(const bool each, flag_field_or(step, "individual_digits", false));
    if (!each) return unsupported("Digits without individual_digits is not supported");
    out.emplace_back(kDigits);
    return {};
  }
  const Json* pattern = find_field(step, "pattern");
  const Json* regex = pattern ? find_field(*pattern, "Regex") : nullptr;
  if (type != "Split" || !regex || !regex->is_string()) return unsupported("a step of type '" + shown(type) + "' is not supported");
  // Isolated, or Removed and inverted: both leave the matches as pieces.
  out.push_back(regex->get<std::string>());
  return {};
}

bool fits(const Row& row, const std::vector<std::string>& steps) {
  size_t n = 0;
  for (const std::string_view s : row.steps) {
    if (s.empty()) break;
    if (n >= steps.size() || steps[n] != s) return false;
    ++n;
  }
  return n == steps.size();
}

}  // namespace

Result<std::string> name_pre_tokenizer(const Json& tokenizer) {
  const Json* pre = find_field(tokenizer, "pre_tokenizer");
  if (!pre) return unsupported("missing");
  std::vector<std::string> steps;
  SLUICE_TRY(read_step(*pre, steps));
  const Json* model = find_field(tokenizer, "model");
  SLUICE_ASSIGN(const bool ignore_merges, flag_field_or(model ? *model : Json(), "ignore_merges", false));
  for (const Row& row : kRows)
    if (fits(row, steps) && row.ignore_merges == ignore_merges) return std::string(row.name);
  std::string all;
  for (const std::string& s : steps) all += (all.empty() ? "'" : ", '") + shown(s) + "'";
  return unsupported("no vocabulary known here is cut by " + (all.empty() ? "nothing" : all) + (ignore_merges ? " with ignore_merges" : ""));
}

Result<PreTokenizerJson> pre_tokenizer_json(const std::string& name) {
  const std::string wanted = " " + name + " ";
  for (const Row& row : kRows) {
    if (name != row.name && row.aliases.find(wanted) == std::string_view::npos) continue;
    Json steps = Json::array();
    bool own_regex = false;
    for (const std::string_view s : row.steps) {
      if (s.empty()) break;
      if (s == kDigits) steps.push_back({{"type", "Digits"}, {"individual_digits", true}});
      else if (s == kByteRegex) own_regex = true;
      else steps.push_back({{"type", "Split"}, {"pattern", {{"Regex", std::string(s)}}}, {"behavior", "Isolated"}, {"invert", false}});
    }
    steps.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", false}, {"use_regex", own_regex}});
    return PreTokenizerJson{{{"type", "Sequence"}, {"pretokenizers", steps}}, row.ignore_merges, row.ignore_merges};
  }
  return Error{ErrorCode::kUnsupported, "tokenizer.ggml.pre: '" + shown(name) + "' cannot be written to tokenizer.json", {}};
}

}  // namespace sluice::format
