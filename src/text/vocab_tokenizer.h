// VocabTokenizer: what both tokenizer kinds share: specials, BOS, decoding. A kind supplies encode_plain alone.
// Immutable; any thread.
#pragma once
#include "text/special_split.h"
#include "text/tokenizer.h"
#include "text/vocab.h"

namespace sluice::text {

class VocabTokenizer : public Tokenizer {
 public:
  VocabTokenizer(Vocab vocab, bool add_bos, bool strips_leading_space);
  VocabTokenizer(const VocabTokenizer&) = delete;
  VocabTokenizer& operator=(const VocabTokenizer&) = delete;

  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const override;
  std::vector<TokenId> encode_spans(const std::vector<Span>& spans, bool add_bos) const override;
  std::string_view token_bytes(TokenId id, bool keep_special) const override;
  std::string decode(const std::vector<TokenId>& ids, bool keep_special) const override;

  int size() const override { return vocab_.size(); }
  TokenKind kind(TokenId id) const override { return vocab_.kind(id); }
  const std::string& token_text(TokenId id) const override { return vocab_.text(id); }
  TokenId bos() const override { return vocab_.spec().bos; }
  TokenId eos() const override { return vocab_.spec().eos; }
  bool add_bos() const override { return add_bos_; }
  bool strips_leading_space() const override { return strips_leading_space_; }
  bool is_end_of_generation(TokenId id) const override { return vocab_.is_end_of_generation(id); }
  const std::vector<TokenId>& end_of_generation() const override { return vocab_.end_of_generation(); }

 protected:
  // Text without specials, not empty. Before it stands nothing or a special token.
  virtual void encode_plain(std::string_view text, std::vector<TokenId>& out) const = 0;
  const Vocab& vocab() const { return vocab_; }
  // Tokens for raw bytes that no token covers.
  void push_bytes(std::string_view bytes, std::vector<TokenId>& out) const;

 private:
  std::vector<TokenId> encode_ranges(std::string_view text, const std::vector<SpecialSplitter::Range>& trusted, bool add_bos) const;

  const Vocab vocab_;
  const SpecialSplitter splitter_;
  const bool add_bos_;
  const bool strips_leading_space_;
};

Result<std::shared_ptr<const Tokenizer>> build_bpe(VocabSpec spec);
Result<std::shared_ptr<const Tokenizer>> build_spm(VocabSpec spec);

}  // namespace sluice::text
