// Tokenizer: text <-> token ids, from the vocabulary a model file carries. Byte-level BPE and SentencePiece (SPM).
// Immutable after build(); every const method may be called from any thread at once.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice::text {

using TokenId = int32_t;

enum class TokenKind : int32_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

// What a model file says of its vocabulary, as plain data (format-independent; nothing in it is trusted).
struct VocabSpec {
  std::string model;                 // "gpt2" (byte-level BPE) or "llama" (SPM)
  std::string pre;                   // pre-tokenizer name (BPE); empty = "default"
  std::vector<std::string> tokens;   // token id -> text as stored
  std::vector<float> scores;         // SPM; may be empty
  std::vector<int32_t> kinds;        // TokenKind numbers; may be empty (all normal)
  std::vector<std::string> merges;   // BPE, "left right"
  // -1 where the file is silent: the model kind's default then holds.
  TokenId bos = -1, eos = -1, eot = -1, eom = -1, unk = -1, pad = -1;
  int add_bos = -1, add_eos = -1, add_space_prefix = -1;  // -1 absent, 0, 1
  std::string name;                  // general.name, for rules keyed on it
};

struct EncodeOptions {
  bool parse_special = false;  // control tokens in the text become their ids (templates); never for user text
  bool add_bos = false;        // adds BOS when the vocabulary says that it wants one
};

class Tokenizer {
 public:
  // Errors: kBadFile naming the metadata field, kUnsupported for an unknown model or pre-tokenizer.
  static Result<std::shared_ptr<const Tokenizer>> build(VocabSpec spec);
  virtual ~Tokenizer() = default;

  virtual std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const = 0;

  // A span of template output: text that came from the user is encoded with control tokens as plain text.
  struct Span { std::string text; bool trusted; };
  // Encodes a rendered template: specials are parsed in trusted spans alone, and a control token's text that straddles
  // a user span never becomes the token. Adjacent plain text is encoded as one piece where no special intervenes.
  virtual std::vector<TokenId> encode_spans(const std::vector<Span>& spans, bool add_bos) const = 0;

  // Raw bytes of one token as it streams (may be part of a character). Control tokens give "" unless keep_special.
  // Precondition: 0 <= id < size().
  virtual std::string_view token_bytes(TokenId id, bool keep_special = false) const = 0;
  // Bytes of a whole text: as joined token_bytes, less the leading space that add_space_prefix put there.
  virtual std::string decode(const std::vector<TokenId>& ids, bool keep_special = false) const = 0;

  virtual int size() const = 0;
  virtual TokenKind kind(TokenId id) const = 0;
  virtual const std::string& token_text(TokenId id) const = 0;  // as stored in the file
  virtual TokenId bos() const = 0;   // -1: none
  virtual TokenId eos() const = 0;   // -1: none
  virtual bool add_bos() const = 0;
  virtual bool strips_leading_space() const = 0;  // SPM with add_space_prefix: a stream drops one leading space
  virtual bool is_end_of_generation(TokenId id) const = 0;
  virtual const std::vector<TokenId>& end_of_generation() const = 0;
};

}  // namespace sluice::text
