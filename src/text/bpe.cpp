// Byte-level BPE: pre-tokenised pieces, each merged by rank with a heap, so a piece of n bytes costs O(n log n).
#include <algorithm>
#include <unordered_map>

#include "text/pre_tokenizers.h"
#include "text/vocab_tokenizer.h"

namespace sluice::text {
namespace {

// Symbols are interned: ids below Vocab::size() are tokens, above it strings that only merges know.
struct Merge {
  int32_t rank;
  int32_t result;
};

class BpeMerges {
 public:
  // Reads spec.merges. Errors: kBadFile naming the merge.
  static Result<BpeMerges> make(const Vocab& vocab);
  const Merge* find(int32_t left, int32_t right) const {
    const auto it = merges_.find(key(left, right));
    return it == merges_.end() ? nullptr : &it->second;
  }
  int32_t byte_symbol(uint8_t byte) const { return byte_symbols_[byte]; }

 private:
  struct KeyHash {
    size_t operator()(uint64_t k) const {
      k *= 0x9E3779B97F4A7C15ull;
      return k ^ k >> 29;
    }
  };
  static uint64_t key(int32_t left, int32_t right) { return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right); }
  int32_t intern(const Vocab& vocab, const std::string& text);

  std::unordered_map<uint64_t, Merge, KeyHash> merges_;
  std::unordered_map<std::string, int32_t> extra_ids_;
  std::vector<std::string> extra_;
  int32_t byte_symbols_[256];
};

int32_t BpeMerges::intern(const Vocab& vocab, const std::string& text) {
  const TokenId id = vocab.find_plain(text);
  if (id >= 0) return id;
  const auto [it, fresh] = extra_ids_.emplace(text, vocab.size() + static_cast<int32_t>(extra_.size()));
  if (fresh) extra_.push_back(text);
  return it->second;
}

Result<BpeMerges> BpeMerges::make(const Vocab& vocab) {
  const std::vector<std::string>& lines = vocab.spec().merges;
  if (lines.empty()) return bad_file("tokenizer.ggml.merges is missing or empty");
  if (lines.size() > (16u << 20)) return bad_file("tokenizer.ggml.merges has " + std::to_string(lines.size()) + " entries, more than 16777216");
  BpeMerges made;
  for (int b = 0; b < 256; ++b) made.byte_symbols_[b] = made.intern(vocab, byte_level_char(static_cast<uint8_t>(b)));
  made.merges_.reserve(lines.size() * 2);
  for (size_t i = 0; i < lines.size(); ++i) {
    // From 1: the left part has at least one byte.
    const size_t space = lines[i].find(' ', 1);
    if (lines[i].empty() || space == std::string::npos || space + 1 == lines[i].size())
      return bad_file("tokenizer.ggml.merges[" + std::to_string(i) + "] is not two parts with a space between");
    const std::string left = lines[i].substr(0, space), right = lines[i].substr(space + 1);
    const int32_t result = made.intern(vocab, left + right);
    // The first of two equal lines has the lower rank and wins.
    made.merges_.emplace(key(made.intern(vocab, left), made.intern(vocab, right)), Merge{static_cast<int32_t>(i), result});
  }
  return made;
}

struct Symbol {
  int32_t id;
  int32_t prev, next;  // -1 at the ends
};

// A pair that may merge; stale once either symbol has changed.
struct Candidate {
  int32_t rank;
  int32_t left, right;        // positions
  int32_t left_id, right_id;  // ids when queued
  int32_t result;
  // std heaps put the largest first: lowest rank, then leftmost.
  bool operator<(const Candidate& o) const { return rank != o.rank ? rank > o.rank : left > o.left; }
};

class BpeTokenizer final : public VocabTokenizer {
 public:
  BpeTokenizer(Vocab vocab, PreTokenizer pre, BpeMerges merges, bool add_bos)
      : VocabTokenizer(std::move(vocab), add_bos, false), pre_(std::move(pre)), merges_(std::move(merges)) {}

 protected:
  void encode_plain(std::string_view text, std::vector<TokenId>& out) const override {
    std::vector<size_t> ends;
    ends.reserve(text.size() / 4 + 1);
    pre_.cut(text, ends);
    Scratch scratch;
    size_t begin = 0;
    for (const size_t end : ends) {
      encode_word(text.substr(begin, end - begin), scratch, out);
      begin = end;
    }
  }

 private:
  struct Scratch {
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
    std::string stored;
  };

  void offer(Scratch& s, int32_t left, int32_t right) const {
    if (left < 0 || right < 0) return;
    const int32_t left_id = s.symbols[left].id, right_id = s.symbols[right].id;
    const Merge* merge = merges_.find(left_id, right_id);
    if (merge == nullptr) return;
    s.heap.push_back({merge->rank, left, right, left_id, right_id, merge->result});
    std::push_heap(s.heap.begin(), s.heap.end());
  }

  void merge_all(Scratch& s) const {
    while (!s.heap.empty()) {
      std::pop_heap(s.heap.begin(), s.heap.end());
      const Candidate c = s.heap.back();
      s.heap.pop_back();
      Symbol& left = s.symbols[c.left];
      Symbol& right = s.symbols[c.right];
      if (left.id != c.left_id || right.id != c.right_id || left.next != c.right) continue;
      left.id = c.result;
      left.next = right.next;
      if (right.next >= 0) s.symbols[right.next].prev = c.left;
      right.id = -1;
      offer(s, left.prev, c.left);
      offer(s, c.left, left.next);
    }
  }

  void encode_word(std::string_view word, Scratch& s, std::vector<TokenId>& out) const {
    if (pre_.ignore_merges() && word.size() <= vocab().longest_token()) {
      s.stored.clear();
      for (const char ch : word) s.stored += byte_level_char(static_cast<uint8_t>(ch));
      if (const TokenId whole = vocab().find_plain(s.stored); whole >= 0) {
        out.push_back(whole);
        return;
      }
    }
    const auto n = static_cast<int32_t>(word.size());
    s.symbols.resize(word.size());
    s.heap.clear();
    for (int32_t i = 0; i < n; ++i) s.symbols[i] = {merges_.byte_symbol(static_cast<uint8_t>(word[i])), i - 1, i + 1 < n ? i + 1 : -1};
    for (int32_t i = 0; i + 1 < n; ++i) offer(s, i, i + 1);
    merge_all(s);
    for (int32_t i = 0; i >= 0; i = s.symbols[i].next) {
      if (s.symbols[i].id < vocab().size()) {
        out.push_back(s.symbols[i].id);
      } else {  // a symbol that is no token: its bytes, which run to the start of the next one
        const int32_t end = s.symbols[i].next < 0 ? n : s.symbols[i].next;
        push_bytes(word.substr(i, end - i), out);
      }
    }
  }

  const PreTokenizer pre_;
  const BpeMerges merges_;
};

}  // namespace

Result<std::shared_ptr<const Tokenizer>> build_bpe(VocabSpec spec) {
  SLUICE_ASSIGN(PreTokenizer pre, PreTokenizer::make(spec.pre));
  SLUICE_ASSIGN(Vocab vocab, Vocab::make(std::move(spec), true));
  SLUICE_ASSIGN(BpeMerges merges, BpeMerges::make(vocab));
  const bool add_bos = vocab.spec().add_bos >= 0 ? vocab.spec().add_bos != 0 : pre.add_bos();
  return std::shared_ptr<const Tokenizer>(std::make_shared<BpeTokenizer>(std::move(vocab), std::move(pre), std::move(merges), add_bos));
}

}  // namespace sluice::text
