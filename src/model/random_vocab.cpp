#include "model/random_vocab.h"

#include <set>

#include "text/vocab.h"

namespace sluice::model {
namespace {

constexpr int kBos = 256, kEos = 257, kLeastSize = 512;
constexpr int64_t kNormal = 1, kControl = 3;

// A space (in the byte alphabet) and letters that spell the id behind a mark that no common word has: all differ.
std::string made_up(int id) {
  std::string w = text::byte_level_char(' ') + "x";
  for (int n = id + 26 * 26; n > 0; n /= 26) w += char('a' + n % 26);
  return w;
}

}  // namespace

std::span<const char* const> common_words() {
  static constexpr const char* kWords[] = {"time", "people", "water", "words", "called", "side", "work", "place", "years", "back",
                                           "name", "good", "sentence", "man", "line", "right", "move", "thing", "old", "number",
                                           "sound", "great", "help", "low", "cause", "mean", "turn", "land", "house", "school",
                                           "world", "point", "city", "play", "small", "end", "home", "hand", "port", "large"};
  return kWords;
}

void add_random_vocab(format::Metadata& m, int size) {
  std::vector<std::string> tokens, merges;
  for (int b = 0; b < 256; ++b) tokens.push_back(text::byte_level_char(uint8_t(b)));
  tokens.insert(tokens.end(), {"<|bos|>", "<|eos|>"});
  // A word grows from its space, a letter at a time: no merge stands in another's way.
  std::set<std::string> seen;
  for (const char* word : common_words()) {
    std::string grown = text::byte_level_char(' ');
    for (const char* c = word; *c; ++c) {
      const std::string merge = grown + " " + *c;
      grown += *c;
      if (!seen.insert(grown).second) continue;
      tokens.push_back(grown);
      merges.push_back(merge);
    }
  }
  SLUICE_CHECK(size >= kLeastSize && tokens.size() <= size_t(kLeastSize));
  while (int(tokens.size()) < size) tokens.push_back(made_up(int(tokens.size())));
  std::vector<int64_t> kinds(size_t(size), kNormal);
  kinds[kBos] = kinds[kEos] = kControl;
  const std::string p = "tokenizer.ggml.";
  m.insert(p + "model", std::string("gpt2"));
  m.insert(p + "pre", std::string("gpt-2"));
  m.insert(p + "tokens", std::move(tokens));
  m.insert(p + "token_type", std::move(kinds));
  m.insert(p + "merges", std::move(merges));
  m.insert(p + "bos_token_id", int64_t{kBos});
  m.insert(p + "eos_token_id", int64_t{kEos});
  m.insert("tokenizer.chat_template", std::string("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"));
}

}  // namespace sluice::model
