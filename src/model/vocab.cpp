#include "model/vocab.h"

#include <limits>

namespace sluice::model {

Result<std::shared_ptr<const text::Tokenizer>> build_tokenizer(const format::Metadata& m) {
  const std::string p = "tokenizer.ggml.";
  text::VocabSpec spec;
  SLUICE_ASSIGN(spec.model, m.string(p + "model"));
  spec.pre = m.string_or(p + "pre", "");
  spec.name = m.string_or("general.name", "");
  SLUICE_ASSIGN(const auto* tokens, m.array<std::string>(p + "tokens"));
  spec.tokens = *tokens;
  if (m.has(p + "scores")) {
    SLUICE_ASSIGN(const auto* scores, m.array<double>(p + "scores"));
    spec.scores.assign(scores->begin(), scores->end());
  }
  if (m.has(p + "token_type")) {
    SLUICE_ASSIGN(const auto* kinds, m.array<int64_t>(p + "token_type"));
    spec.kinds.assign(kinds->begin(), kinds->end());
  }
  if (m.has(p + "merges")) {
    SLUICE_ASSIGN(const auto* merges, m.array<std::string>(p + "merges"));
    spec.merges = *merges;
  }
  const std::pair<const char*, text::TokenId*> ids[] = {
      {"bos_token_id", &spec.bos}, {"eos_token_id", &spec.eos}, {"eot_token_id", &spec.eot},
      {"eom_token_id", &spec.eom}, {"unknown_token_id", &spec.unk}, {"padding_token_id", &spec.pad}};
  for (const auto& [key, id] : ids) {
    // u32 -1 is how some writers say "none".
    SLUICE_ASSIGN(int64_t v, m.integer_or(p + key, -1, -1, std::numeric_limits<uint32_t>::max()));
    *id = v == std::numeric_limits<uint32_t>::max() ? -1 : text::TokenId(std::min<int64_t>(v, std::numeric_limits<int32_t>::max()));
  }
  const std::pair<const char*, int*> flags[] = {
      {"add_bos_token", &spec.add_bos}, {"add_eos_token", &spec.add_eos}, {"add_space_prefix", &spec.add_space_prefix}};
  for (const auto& [key, flag] : flags) {
    SLUICE_ASSIGN(*flag, m.flag(p + key));
  }
  return text::Tokenizer::build(std::move(spec));
}

Result<std::shared_ptr<const text::ChatTemplate>> build_chat_template(const format::Metadata& m) {
  if (!m.has("tokenizer.chat_template")) return std::shared_ptr<const text::ChatTemplate>();
  SLUICE_ASSIGN(std::string source, m.string("tokenizer.chat_template"));
  return text::ChatTemplate::parse(source);
}

}  // namespace sluice::model
