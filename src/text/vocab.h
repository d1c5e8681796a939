// Vocab: a checked VocabSpec with what encoding and decoding look up: kinds, raw bytes of each token, ends of generation.
// Immutable after make(); any thread. Errors: kBadFile naming the metadata key (tokenizer.ggml.merges[17]).
#pragma once
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "text/tokenizer.h"

namespace sluice::text {

class Vocab {
 public:
  Vocab(const Vocab&) = delete;
  Vocab& operator=(const Vocab&) = delete;
  Vocab(Vocab&&) = default;
  Vocab& operator=(Vocab&&) = default;
  // byte_level: tokens are stored in the byte-to-character alphabet (BPE); otherwise U+2581 stands for a space (SPM).
  static Result<Vocab> make(VocabSpec spec, bool byte_level);

  int size() const { return static_cast<int>(spec_.tokens.size()); }
  bool contains(TokenId id) const { return id >= 0 && id < size(); }
  TokenKind kind(TokenId id) const { return static_cast<TokenKind>(spec_.kinds[id]); }
  const std::string& text(TokenId id) const { return spec_.tokens[id]; }
  // A token that plain text may become, by its stored text; -1 if none. Never control, unknown, unused or user-defined:
  // those come from the special splitter alone, so no merge of user text can produce one.
  TokenId find_plain(std::string_view stored) const;
  TokenId find_any(std::string_view stored) const;
  // The token of one raw byte; -1 if the vocabulary lacks it.
  TokenId byte_token(uint8_t byte) const { return byte_tokens_[byte]; }
  // What stands for a byte that has no token: the unknown token, unless that is a control token; else -1 (drop).
  TokenId fallback_token() const { return fallback_; }
  std::string_view bytes(TokenId id) const {
    return std::string_view(arena_).substr(byte_begin_[id], byte_begin_[id + 1] - byte_begin_[id]);
  }
  size_t longest_token() const { return longest_; }
  const VocabSpec& spec() const { return spec_; }
  const std::vector<TokenId>& end_of_generation() const { return end_of_generation_; }
  bool is_end_of_generation(TokenId id) const { return contains(id) && is_end_[id]; }

 private:
  Status check();
  Status check_ids();
  Status index_texts();
  void apply_id_defaults(bool byte_level);
  void fill_bytes(bool byte_level);
  void fill_byte_tokens(bool byte_level);
  void collect_ends();
  Vocab() = default;

  VocabSpec spec_;
  std::unordered_map<std::string_view, TokenId> ids_;  // views into spec_.tokens, which never changes again
  std::string arena_;
  std::vector<size_t> byte_begin_;
  TokenId byte_tokens_[256];
  TokenId fallback_ = -1;
  size_t longest_ = 0;
  std::vector<TokenId> end_of_generation_;
  std::vector<bool> is_end_;
};

// The reversible alphabet of byte-level BPE: printable Latin-1 stands for itself, the other 68 bytes for U+0100 on.
const std::string& byte_level_char(uint8_t byte);
// The byte that a character stands for; -1 outside the alphabet.
int byte_level_byte(uint32_t code);

}  // namespace sluice::text
