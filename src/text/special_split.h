// SpecialSplitter: finds added tokens in text, leftmost first and the longest at a place, before anything else sees it.
// Immutable after construction; any thread.
#pragma once
#include <string_view>
#include <vector>

#include "text/vocab.h"

namespace sluice::text {

class SpecialSplitter {
 public:
  struct Piece {
    size_t begin, end;
    TokenId id;  // -1: plain text
  };
  struct Range {
    size_t begin, end;
  };

  explicit SpecialSplitter(const Vocab& vocab);

  // User-defined tokens are cut out everywhere; control and unknown tokens only where the whole of their text lies in
  // one of the trusted ranges (ascending, disjoint, adjacent ones joined). Pieces cover the text but for whitespace
  // that a token swallows.
  std::vector<Piece> split(std::string_view text, const std::vector<Range>& trusted) const;

 private:
  struct Node {
    std::vector<std::pair<uint8_t, int32_t>> next;  // sorted by byte
    TokenId id = -1;
  };
  struct Match {
    TokenId id = -1;
    size_t length = 0;
  };
  int32_t child(int32_t node, uint8_t byte) const;
  void insert(std::string_view text, TokenId id);
  Match longest_at(std::string_view text, size_t at, size_t trusted_end) const;

  const Vocab* vocab_;
  std::vector<Node> nodes_;
  int32_t root_[256];
  bool strip_right_ = false;
};

}  // namespace sluice::text
