// Any bytes as text for each kind of tokenizer, and as a vocabulary. User spans must never give a control token.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "text/tokenizer.h"
#include "text/vocab.h"

namespace {

using namespace sluice::text;

std::shared_ptr<const Tokenizer> bpe(const char* pre) {
  VocabSpec spec;
  spec.model = "gpt2";
  spec.pre = pre;
  for (int b = 0; b < 256; ++b) spec.tokens.push_back(byte_level_char(static_cast<uint8_t>(b)));
  for (const char* merge : {"a a", "aa aa", "< |", "\xC4\xA0 a"}) {
    spec.merges.push_back(merge);
    std::string joined = merge;
    spec.tokens.push_back(joined.erase(joined.find(' ', 1), 1));
  }
  spec.kinds.assign(spec.tokens.size(), 1);
  for (const char* control : {"<|x|>", "aaa", "<s>"}) {
    spec.tokens.push_back(control);
    spec.kinds.push_back(3);
  }
  return *Tokenizer::build(std::move(spec));
}

std::shared_ptr<const Tokenizer> spm() {
  VocabSpec spec;
  spec.model = "llama";
  for (const char* token : {"<unk>", "<s>", "</s>", "a", "aa", "\xE2\x96\x81", "\xE2\x96\x81" "a", "<", "s>"}) spec.tokens.push_back(token);
  spec.kinds = {2, 3, 3, 1, 1, 1, 1, 1, 1};
  spec.scores = {0, 0, 0, -5, -1, -6, -2, -7, -3};
  return *Tokenizer::build(std::move(spec));
}

void check_text(const Tokenizer& t, std::string_view input) {
  const size_t cut = input.size() / 2;
  const std::string first(input.substr(0, cut)), second(input.substr(cut));
  for (const TokenId id : t.encode(input, {}))
    if (t.kind(id) == TokenKind::kControl) std::abort();
  t.decode(t.encode(input, {true, true}), true);
  t.encode_spans({{first, true}, {second, false}}, true);
  for (const TokenId id : t.encode_spans({{first, false}, {second, false}}, false))
    if (t.kind(id) == TokenKind::kControl) std::abort();
}

void check_vocab(std::string_view input) {
  VocabSpec spec;
  spec.model = !input.empty() && (input[0] & 1) ? "gpt2" : "llama";
  spec.pre = "gpt-2";
  while (!input.empty()) {
    const size_t end = std::min(input.find('\n'), input.size());
    const std::string_view line = input.substr(0, end);
    input.remove_prefix(std::min(end + 1, input.size()));
    if (line.find(' ', 1) != std::string_view::npos) spec.merges.emplace_back(line);
    else spec.tokens.emplace_back(line);
  }
  const auto built = Tokenizer::build(std::move(spec));
  if (built.ok()) (*built)->decode((*built)->encode("aa <s> \xFF", {}));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::shared_ptr<const Tokenizer> kAll[] = {bpe("gpt-2"),  bpe("llama-bpe"),    bpe("qwen2"),       bpe("falcon"), bpe("default"), bpe("deepseek-llm"),
                                                          bpe("tekken"), bpe("deepseek-v3"), bpe("bailingmoe"), spm()};
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  for (const auto& tokenizer : kAll) check_text(*tokenizer, input);
  check_vocab(input);
  return 0;
}
