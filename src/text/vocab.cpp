#include "text/vocab.h"

#include <algorithm>
#include <cmath>

#include "text/utf8.h"

namespace sluice::text {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581
constexpr size_t kMaxTokens = 16u << 20;

std::string at(const char* key, size_t index) { return "tokenizer.ggml." + std::string(key) + "[" + std::to_string(index) + "]"; }

// "<0x41>" -> 0x41; -1 for anything else.
int parse_byte_name(std::string_view s) {
  if (s.size() != 6 || s.substr(0, 3) != "<0x" || s[5] != '>') return -1;
  int value = 0;
  for (const char c : s.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

}  // namespace

Result<Vocab> Vocab::make(VocabSpec spec, bool byte_level) {
  Vocab v;
  v.spec_ = std::move(spec);
  SLUICE_TRY(v.check());
  v.apply_id_defaults(byte_level);
  SLUICE_TRY(v.index_texts());
  v.fill_bytes(byte_level);
  v.fill_byte_tokens(byte_level);
  v.collect_ends();
  return v;
}

Status Vocab::check() {
  const size_t n = spec_.tokens.size();
  if (n == 0) return bad_file("tokenizer.ggml.tokens is missing or empty");
  if (n > kMaxTokens) return bad_file("tokenizer.ggml.tokens has " + std::to_string(n) + " entries, more than " + std::to_string(kMaxTokens));
  if (!spec_.scores.empty() && spec_.scores.size() != n)
    return bad_file("tokenizer.ggml.scores has " + std::to_string(spec_.scores.size()) + " entries for " + std::to_string(n) + " tokens");
  for (size_t i = 0; i < spec_.scores.size(); ++i)
    if (std::isnan(spec_.scores[i])) return bad_file(at("scores", i) + " is not a number");
  if (spec_.kinds.empty()) {
    spec_.kinds.assign(n, static_cast<int32_t>(TokenKind::kNormal));
    // With no kinds at all, the named control ids are all that tells control tokens from text.
    for (const TokenId id : {spec_.bos, spec_.eos, spec_.eot, spec_.eom})
      if (id >= 0 && static_cast<size_t>(id) < n) spec_.kinds[id] = static_cast<int32_t>(TokenKind::kControl);
  }
  if (spec_.kinds.size() != n)
    return bad_file("tokenizer.ggml.token_type has " + std::to_string(spec_.kinds.size()) + " entries for " + std::to_string(n) + " tokens");
  for (size_t i = 0; i < n; ++i) {
    // 0 is "undefined" in old files: treated as unused, so it is never made from text.
    if (spec_.kinds[i] == 0) spec_.kinds[i] = static_cast<int32_t>(TokenKind::kUnused);
    if (spec_.kinds[i] < 1 || spec_.kinds[i] > 6)
      return bad_file(at("token_type", i) + " is " + std::to_string(spec_.kinds[i]) + ", not 1 to 6");
  }
  return check_ids();
}

Status Vocab::check_ids() {
  const std::pair<const char*, TokenId> named[] = {{"bos_token_id", spec_.bos},     {"eos_token_id", spec_.eos},
                                                   {"eot_token_id", spec_.eot},     {"eom_token_id", spec_.eom},
                                                   {"unknown_token_id", spec_.unk}, {"padding_token_id", spec_.pad}};
  for (const auto& [key, id] : named)
    if (id < -1 || id >= size())
      return bad_file("tokenizer.ggml." + std::string(key) + " is " + std::to_string(id) + ", outside the " + std::to_string(size()) + " tokens");
  return {};
}

void Vocab::apply_id_defaults(bool byte_level) {
  // A default is taken only where it lands on a token of that nature: an arbitrary word must not end a generation.
  const auto take = [&](TokenId& id, TokenId value) {
    if (id < 0 && contains(value) && (kind(value) == TokenKind::kControl || kind(value) == TokenKind::kUnknown)) id = value;
  };
  take(spec_.bos, byte_level ? 11 : 1);
  take(spec_.eos, byte_level ? 11 : 2);
  if (!byte_level) take(spec_.unk, 0);
  if (contains(spec_.unk) && kind(spec_.unk) != TokenKind::kControl) fallback_ = spec_.unk;
}

Status Vocab::index_texts() {
  ids_.reserve(spec_.tokens.size() * 2);
  for (size_t i = 0; i < spec_.tokens.size(); ++i) {
    std::string& token = spec_.tokens[i];
    if (token.empty()) {  // named, so that it can never match text, and unused
      token = "[EMPTY_" + std::to_string(i) + "]";
      if (spec_.kinds[i] == static_cast<int32_t>(TokenKind::kNormal)) spec_.kinds[i] = static_cast<int32_t>(TokenKind::kUnused);
    }
    const auto [where, fresh] = ids_.emplace(token, static_cast<TokenId>(i));
    if (!fresh) return bad_file(at("tokens", i) + " repeats the text of token " + std::to_string(where->second));
    longest_ = std::max(longest_, token.size());
  }
  return {};
}

TokenId Vocab::find_any(std::string_view stored) const {
  const auto it = ids_.find(stored);
  return it == ids_.end() ? -1 : it->second;
}

TokenId Vocab::find_plain(std::string_view stored) const {
  const TokenId id = find_any(stored);
  return id >= 0 && kind(id) == TokenKind::kNormal ? id : -1;
}

void Vocab::fill_bytes(bool byte_level) {
  byte_begin_.reserve(spec_.tokens.size() + 1);
  for (TokenId id = 0; id < size(); ++id) {
    byte_begin_.push_back(arena_.size());
    const std::string& token = spec_.tokens[id];
    const int named_byte = kind(id) == TokenKind::kByte ? parse_byte_name(token) : -1;
    if (named_byte >= 0) {
      arena_ += static_cast<char>(named_byte);
    } else if (kind(id) != TokenKind::kNormal) {
      arena_ += token;  // added tokens are literal text
    } else if (byte_level) {
      for (size_t i = 0; i < token.size();) {
        const Utf8Char c = utf8_at(token, i);
        const int byte = c.valid ? byte_level_byte(c.code) : -1;
        if (byte >= 0) arena_ += static_cast<char>(byte);
        else arena_.append(token, i, c.length);
        i += c.length;
      }
    } else {
      size_t from = 0;
      for (size_t mark; (mark = token.find(kSpaceMark, from)) != std::string::npos; from = mark + kSpaceMark.size()) {
        arena_.append(token, from, mark - from);
        arena_ += ' ';
      }
      arena_.append(token, from);
    }
  }
  byte_begin_.push_back(arena_.size());
}

void Vocab::fill_byte_tokens(bool byte_level) {
  std::fill(std::begin(byte_tokens_), std::end(byte_tokens_), -1);
  for (TokenId id = 0; id < size(); ++id) {
    if (kind(id) != TokenKind::kByte) continue;
    const int byte = parse_byte_name(text(id));
    if (byte >= 0) byte_tokens_[byte] = id;
  }
  if (!byte_level) return;
  for (int b = 0; b < 256; ++b)
    if (byte_tokens_[b] < 0) byte_tokens_[b] = find_plain(byte_level_char(static_cast<uint8_t>(b)));
}

void Vocab::collect_ends() {
  static constexpr std::string_view kEndTexts[] = {
      "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<end_of_turn>", "<|endoftext|>", "<|eom_id|>", "<EOT>", "[EOT]",
      "[EOS]", "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>", "</s>",
      "<\xEF\xBD\x9C" "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>"};
  is_end_.assign(spec_.tokens.size(), false);
  const bool channels = find_any("<|return|>") >= 0 && find_any("<|call|>") >= 0;
  const bool tool_response = find_any("<|tool_response>") >= 0;
  for (const std::string_view name : kEndTexts) {
    const TokenId id = find_any(name);
    if (id < 0) continue;
    if (name == "<|end|>" && channels) continue;
    // "</s>" is also an HTML tag: in vocabularies that list it as plain or user-defined text it ends nothing.
    if (name == "</s>" && (tool_response || kind(id) != TokenKind::kControl)) continue;
    is_end_[id] = true;
  }
  for (const TokenId id : {spec_.eos, spec_.eot, spec_.eom})
    if (id >= 0) is_end_[id] = true;
  for (TokenId id = 0; id < size(); ++id)
    if (is_end_[id]) end_of_generation_.push_back(id);
}

}  // namespace sluice::text
