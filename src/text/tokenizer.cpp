#include "text/tokenizer.h"

#include "text/vocab_tokenizer.h"

namespace sluice::text {

Result<std::shared_ptr<const Tokenizer>> Tokenizer::build(VocabSpec spec) {
  if (spec.model == "gpt2") return build_bpe(std::move(spec));
  if (spec.model == "llama") return build_spm(std::move(spec));
  return Error{ErrorCode::kUnsupported, "tokenizer.ggml.model: no tokenizer for '" + spec.model + "' (gpt2 and llama are)", {}};
}

VocabTokenizer::VocabTokenizer(Vocab vocab, bool add_bos, bool strips_leading_space)
    : vocab_(std::move(vocab)), splitter_(vocab_), add_bos_(add_bos && vocab_.spec().bos >= 0), strips_leading_space_(strips_leading_space) {}

std::vector<TokenId> VocabTokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  std::vector<SpecialSplitter::Range> trusted;
  if (options.parse_special && !text.empty()) trusted.push_back({0, text.size()});
  return encode_ranges(text, trusted, options.add_bos);
}

std::vector<TokenId> VocabTokenizer::encode_spans(const std::vector<Span>& spans, bool add_bos) const {
  std::string text;
  std::vector<SpecialSplitter::Range> trusted;
  for (const Span& span : spans) {
    const size_t begin = text.size();
    text += span.text;
    if (!span.trusted || span.text.empty()) continue;
    if (!trusted.empty() && trusted.back().end == begin) trusted.back().end = text.size();
    else trusted.push_back({begin, text.size()});
  }
  return encode_ranges(text, trusted, add_bos);
}

std::vector<TokenId> VocabTokenizer::encode_ranges(std::string_view text, const std::vector<SpecialSplitter::Range>& trusted, bool add_bos) const {
  const std::vector<SpecialSplitter::Piece> pieces = splitter_.split(text, trusted);
  std::vector<TokenId> ids;
  ids.reserve(text.size() / 3 + 2);
  // A template that prints its own BOS must not get a second one.
  if (add_bos && add_bos_ && (pieces.empty() || pieces[0].id != bos())) ids.push_back(bos());
  for (const SpecialSplitter::Piece& piece : pieces) {
    if (piece.id >= 0) ids.push_back(piece.id);
    else encode_plain(text.substr(piece.begin, piece.end - piece.begin), ids);
  }
  return ids;
}

void VocabTokenizer::push_bytes(std::string_view bytes, std::vector<TokenId>& out) const {
  for (const char ch : bytes) {
    TokenId id = vocab_.byte_token(static_cast<uint8_t>(ch));
    if (id < 0) id = vocab_.fallback_token();
    if (id >= 0) out.push_back(id);
  }
}

std::string_view VocabTokenizer::token_bytes(TokenId id, bool keep_special) const {
  const TokenKind kind = vocab_.kind(id);
  const bool silent = kind == TokenKind::kControl || kind == TokenKind::kUnknown || kind == TokenKind::kUnused;
  return silent && !keep_special ? std::string_view{} : vocab_.bytes(id);
}

std::string VocabTokenizer::decode(const std::vector<TokenId>& ids, bool keep_special) const {
  std::string out;
  bool strip = strips_leading_space_;  // until the first token that is text
  for (const TokenId id : ids) {
    if (!vocab_.contains(id)) continue;
    std::string_view bytes = token_bytes(id, keep_special);
    const bool is_text = vocab_.kind(id) == TokenKind::kNormal || vocab_.kind(id) == TokenKind::kByte;
    if (strip && is_text) {
      if (!bytes.empty() && bytes[0] == ' ') bytes.remove_prefix(1);
      strip = false;
    }
    out += bytes;
  }
  return out;
}

}  // namespace sluice::text
