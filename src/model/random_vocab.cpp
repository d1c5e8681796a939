#include "model/random_vocab.h"

#include "text/vocab.h"

namespace sluice::model {
namespace {

constexpr int kBos = 256, kEos = 257, kPair = 258;
constexpr int64_t kNormal = 1, kControl = 3;

// A space (in the byte alphabet) and letters that spell the id: all differ.
std::string word(int id) {
  std::string w = text::byte_level_char(' ');
  for (int n = id + 26 * 26; n > 0; n /= 26) w += char('a' + n % 26);
  return w;
}

}  // namespace

void add_random_vocab(format::Metadata& m, int size) {
  SLUICE_CHECK(size > kPair + 1);
  std::vector<std::string> tokens;
  std::vector<int64_t> kinds(size_t(size), kNormal);
  for (int b = 0; b < 256; ++b) tokens.push_back(text::byte_level_char(uint8_t(b)));
  tokens.insert(tokens.end(), {"<|bos|>", "<|eos|>", "th"});
  kinds[kBos] = kinds[kEos] = kControl;
  for (int id = kPair + 1; id < size; ++id) tokens.push_back(word(id));
  const std::string p = "tokenizer.ggml.";
  m.insert(p + "model", std::string("gpt2"));
  m.insert(p + "pre", std::string("gpt-2"));
  m.insert(p + "tokens", std::move(tokens));
  m.insert(p + "token_type", std::move(kinds));
  m.insert(p + "merges", std::vector<std::string>{"t h"});
  m.insert(p + "bos_token_id", int64_t{kBos});
  m.insert(p + "eos_token_id", int64_t{kEos});
  m.insert("tokenizer.chat_template", std::string("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant:"));
}

}  // namespace sluice::model
