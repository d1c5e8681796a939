#include "text/special_split.h"

#include <algorithm>

#include "text/utf8.h"

namespace sluice::text {
namespace {

// Phi-3 vocabularies swallow whitespace after their added tokens; the file does not say so, only the name tells.
bool name_strips_right(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return static_cast<char>(c < 128 ? std::tolower(c) : c); });
  return name.find("phi-3") != std::string::npos || name.find("phi3") != std::string::npos;
}

}  // namespace

SpecialSplitter::SpecialSplitter(const Vocab& vocab) : vocab_(&vocab), nodes_(1), strip_right_(name_strips_right(vocab.spec().name)) {
  for (TokenId id = 0; id < vocab.size(); ++id) {
    const TokenKind kind = vocab.kind(id);
    if (kind == TokenKind::kControl || kind == TokenKind::kUserDefined || kind == TokenKind::kUnknown) insert(vocab.text(id), id);
  }
  std::fill(std::begin(root_), std::end(root_), -1);
  for (const auto& [byte, node] : nodes_[0].next) root_[byte] = node;
}

int32_t SpecialSplitter::child(int32_t node, uint8_t byte) const {
  const auto& next = nodes_[node].next;
  const auto it = std::lower_bound(next.begin(), next.end(), byte, [](const auto& edge, uint8_t b) { return edge.first < b; });
  return it != next.end() && it->first == byte ? it->second : -1;
}

void SpecialSplitter::insert(std::string_view text, TokenId id) {
  int32_t node = 0;
  for (const char ch : text) {
    const auto byte = static_cast<uint8_t>(ch);
    int32_t to = child(node, byte);
    if (to < 0) {
      to = static_cast<int32_t>(nodes_.size());
      nodes_.emplace_back();
      auto& next = nodes_[node].next;
      next.insert(std::lower_bound(next.begin(), next.end(), std::make_pair(byte, int32_t{0})), {byte, to});
    }
    node = to;
  }
  nodes_[node].id = id;
}

SpecialSplitter::Match SpecialSplitter::longest_at(std::string_view text, size_t at, size_t trusted_end) const {
  Match best;
  int32_t node = root_[static_cast<uint8_t>(text[at])];
  for (size_t end = at + 1; node >= 0; ++end) {
    const TokenId id = nodes_[node].id;
    if (id >= 0 && (end <= trusted_end || vocab_->kind(id) == TokenKind::kUserDefined)) best = {id, end - at};
    if (end >= text.size()) break;
    node = child(node, static_cast<uint8_t>(text[end]));
  }
  return best;
}

std::vector<SpecialSplitter::Piece> SpecialSplitter::split(std::string_view text, const std::vector<Range>& trusted) const {
  std::vector<Piece> pieces;
  size_t plain = 0, range = 0;
  for (size_t at = 0; at < text.size();) {
    while (range < trusted.size() && trusted[range].end <= at) ++range;
    const size_t trusted_end = range < trusted.size() && trusted[range].begin <= at ? trusted[range].end : at;
    const Match match = longest_at(text, at, trusted_end);
    if (match.id < 0) {
      ++at;
      continue;
    }
    if (plain < at) pieces.push_back({plain, at, -1});
    pieces.push_back({at, at + match.length, match.id});
    at += match.length;
    const std::string& token = vocab_->text(match.id);
    if (strip_right_ && token != "<unk>" && token != "<s>" && token != "<|endoftext|>") {
      while (at < text.size()) {
        const Utf8Char c = utf8_at(text, at);
        if (!c.valid || !is_unicode_space(c.code)) break;
        at += c.length;
      }
    }
    plain = at;
  }
  if (plain < text.size()) pieces.push_back({plain, text.size(), -1});
  return pieces;
}

}  // namespace sluice::text
