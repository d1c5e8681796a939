// SentencePiece BPE: characters merged by highest score with a heap; what no token covers becomes byte tokens.
#include <algorithm>

#include "text/utf8.h"
#include "text/vocab_tokenizer.h"

namespace sluice::text {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581 stands for a space

struct Symbol {
  size_t begin, length;  // bytes of the marked text; length 0: merged away
  int64_t prev, next;    // -1 at the ends
};

// Two neighbours whose joined text is a token; stale once a length has changed.
struct Candidate {
  float score;
  int64_t left, right;
  size_t length;
  bool operator<(const Candidate& o) const { return score != o.score ? score < o.score : left > o.left; }
};

class SpmTokenizer final : public VocabTokenizer {
 public:
  SpmTokenizer(Vocab vocab, bool add_bos, bool add_space_prefix) : VocabTokenizer(std::move(vocab), add_bos, add_space_prefix), add_space_prefix_(add_space_prefix) {}

 protected:
  void encode_plain(std::string_view text, std::vector<TokenId>& out) const override {
    Work w;
    w.text.reserve(text.size() * 3 / 2 + 3);
    if (add_space_prefix_) w.text += kSpaceMark;
    for (const char ch : text) {
      if (ch == ' ') w.text += kSpaceMark;
      else w.text += ch;
    }
    for (size_t i = 0; i < w.text.size();) {
      const size_t length = utf8_at(w.text, i).length;
      const auto index = static_cast<int64_t>(w.symbols.size());
      w.symbols.push_back({i, length, index - 1, index + 1});
      i += length;
    }
    w.symbols.back().next = -1;
    for (size_t i = 1; i < w.symbols.size(); ++i) offer(w, static_cast<int64_t>(i) - 1, static_cast<int64_t>(i));
    merge_all(w);
    for (int64_t i = 0; i >= 0; i = w.symbols[i].next) {
      const std::string_view piece = std::string_view(w.text).substr(w.symbols[i].begin, w.symbols[i].length);
      const TokenId id = vocab().find_plain(piece);
      if (id >= 0) out.push_back(id);
      else push_bytes(piece == kSpaceMark && vocab().byte_token(0xE2) < 0 ? std::string_view(" ") : piece, out);
    }
  }

 private:
  struct Work {
    std::string text;
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };

  void offer(Work& w, int64_t left, int64_t right) const {
    if (left < 0 || right < 0) return;
    const Symbol& a = w.symbols[left];
    const size_t length = a.length + w.symbols[right].length;
    if (length > vocab().longest_token()) return;
    const TokenId id = vocab().find_plain(std::string_view(w.text).substr(a.begin, length));
    if (id < 0) return;
    const float score = vocab().spec().scores.empty() ? 0.0f : vocab().spec().scores[id];
    w.heap.push_back({score, left, right, length});
    std::push_heap(w.heap.begin(), w.heap.end());
  }

  void merge_all(Work& w) const {
    while (!w.heap.empty()) {
      std::pop_heap(w.heap.begin(), w.heap.end());
      const Candidate c = w.heap.back();
      w.heap.pop_back();
      Symbol& left = w.symbols[c.left];
      Symbol& right = w.symbols[c.right];
      if (left.length == 0 || right.length == 0 || left.length + right.length != c.length || left.next != c.right) continue;
      left.length = c.length;
      right.length = 0;
      left.next = right.next;
      if (right.next >= 0) w.symbols[right.next].prev = c.left;
      offer(w, left.prev, c.left);
      offer(w, c.left, left.next);
    }
  }

  const bool add_space_prefix_;
};

}  // namespace

Result<std::shared_ptr<const Tokenizer>> build_spm(VocabSpec spec) {
  SLUICE_ASSIGN(Vocab vocab, Vocab::make(std::move(spec), false));
  const bool add_bos = vocab.spec().add_bos != 0;            // silent: yes
  const bool space_prefix = vocab.spec().add_space_prefix != 0;  // silent: yes
  return std::shared_ptr<const Tokenizer>(std::make_shared<SpmTokenizer>(std::move(vocab), add_bos, space_prefix));
}

}  // namespace sluice::text
