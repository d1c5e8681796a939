// PreTokenizer: cuts text into the pieces inside which BPE may merge, by the regexes that belong to a `pre` name.
// Immutable after make(); any thread (each call has its own match state). Errors: kUnsupported for an unknown name.
#pragma once
#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace sluice::text {

struct PreTokenizerTraits {
  std::array<std::string_view, 6> regexes;  // applied in turn, each inside the pieces that the one before left; empty ends
  bool ignore_merges = false;               // a piece that is a token as a whole is not merged
  bool add_bos = false;                     // default where the file is silent
};

class PreTokenizer {
 public:
  static Result<PreTokenizer> make(std::string_view name);
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  bool ignore_merges() const { return ignore_merges_; }
  bool add_bos() const { return add_bos_; }
  // Appends the end offset of every piece, in order; the last is text.size(). Any bytes are accepted: runs of invalid
  // UTF-8 are pieces of their own. Where the regex engine hits its limits the rest of a piece stays whole.
  void cut(std::string_view text, std::vector<size_t>& ends) const;

 private:
  struct Compiled;
  PreTokenizer();
  std::vector<Compiled> steps_;
  bool ignore_merges_ = false;
  bool add_bos_ = false;
};

// The table row of a name; nullptr if unknown.
const PreTokenizerTraits* find_pre_tokenizer(std::string_view name);

}  // namespace sluice::text
