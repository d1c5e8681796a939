// Vectors made by the models' own tokenizers: tests/data/tokenizers, the folder in SLUICE_TOKENIZERS, and (manual check)
// prompts of real models from SLUICE_GOLDEN (texts.json, MODEL.json) with vocabularies from SLUICE_MODELS.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "tests/text/mini_gguf.h"
#include "text/utf8_stream.h"

namespace sluice::text {
namespace {

namespace fs = std::filesystem;

std::string slurp(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

std::vector<std::string> cases_of(const std::string& inp) {
  const std::string separator = "\n__ggml_vocab_test__\n";
  std::vector<std::string> cases;
  size_t from = 0;
  for (size_t at; (at = inp.find(separator, from)) != std::string::npos; from = at + separator.size())
    cases.push_back(inp.substr(from, at - from));
  return cases;  // what follows the last separator is empty
}

std::vector<fs::path> vocab_files() {
  std::vector<fs::path> folders = {fs::path(SLUICE_TEST_DATA) / "tokenizers"};
  if (const char* more = std::getenv("SLUICE_TOKENIZERS")) folders.push_back(more);
  else std::cout << "SLUICE_TOKENIZERS is not set: only the committed vocabularies are tested\n";
  std::vector<fs::path> files;
  for (const fs::path& folder : folders)
    for (const auto& entry : fs::directory_iterator(folder))
      if (entry.path().extension() == ".gguf") files.push_back(entry.path());
  return files;
}

std::shared_ptr<const Tokenizer> load(const fs::path& path) {
  testing::MiniGguf gguf;
  EXPECT_TRUE(gguf.read(path)) << path;
  auto built = Tokenizer::build(gguf.vocab());
  EXPECT_TRUE(built.ok()) << path << ": " << (built.ok() ? "" : built.error().message);
  return built.ok() ? *built : nullptr;
}

TEST(TokenizerVectors, IdsAreExactAndRoundTrip) {
  const auto files = vocab_files();
  ASSERT_GE(files.size(), 4u);
  for (const fs::path& path : files) {
    const auto tokenizer = load(path);
    ASSERT_TRUE(tokenizer);
    const auto cases = cases_of(slurp(path.string() + ".inp"));
    ASSERT_GE(cases.size(), 40u);
    std::istringstream expected(slurp(path.string() + ".out"));
    for (const std::string& text : cases) {
      std::string line;
      std::getline(expected, line);
      std::istringstream numbers(line);
      std::vector<TokenId> want;
      for (TokenId id; numbers >> id;) want.push_back(id);
      const auto got = tokenizer->encode(text, {});
      EXPECT_EQ(got, want) << path << " on [" << text << "]";
      EXPECT_EQ(tokenizer->decode(got), text) << path;
    }
    std::cout << path.filename() << ": " << cases.size() << " cases\n";
  }
}

TEST(TokenizerVectors, AnyBytesEncodeAndComeBack) {
  std::string all;
  for (int b = 0; b < 256; ++b) all += static_cast<char>(b);
  const std::string texts[] = {"\xC3", "abc \xFF\xFE def", "\xE2\x82", "\xED\xA0\x80 x", all};
  for (const fs::path& path : vocab_files()) {
    const auto tokenizer = load(path);
    ASSERT_TRUE(tokenizer);
    // Bytes that never occur in UTF-8 may lack a token in a byte-level vocabulary; the rest must survive.
    for (const std::string& text : texts) {
      const std::string back = tokenizer->decode(tokenizer->encode(text, {}));
      EXPECT_LE(back.size(), text.size()) << path;
      if (back.size() == text.size()) {
        EXPECT_EQ(back, text) << path;
      }
    }
  }
}

TEST(TokenizerVectors, GoldenPromptsOfRealModels) {
  const char* golden = std::getenv("SLUICE_GOLDEN");
  const char* models = std::getenv("SLUICE_MODELS");
  if (golden == nullptr || models == nullptr) {
    std::cout << "SLUICE_GOLDEN and SLUICE_MODELS are not both set: nothing to check\n";
    return;
  }
  const auto texts = nlohmann::json::parse(slurp(fs::path(golden) / "texts.json"));
  for (const auto& entry : fs::directory_iterator(models)) {
    const fs::path expected = fs::path(golden) / (entry.path().stem().string() + ".json");
    if (entry.path().extension() != ".gguf" || !fs::exists(expected)) continue;
    const auto tokenizer = load(entry.path());
    ASSERT_TRUE(tokenizer);
    const auto want = nlohmann::json::parse(slurp(expected));
    for (const auto& [name, text] : texts["prompts"].items())
      EXPECT_EQ(tokenizer->encode(text.get<std::string>(), {false, true}), want[name]["ids"].get<std::vector<TokenId>>()) << entry.path() << " " << name;
    const std::string model = entry.path().stem();
    if (texts["chat"].contains(model)) {
      const auto ids = tokenizer->encode(texts["chat"][model].get<std::string>(), {true, true});
      EXPECT_EQ(ids, want["chat"]["ids"].get<std::vector<TokenId>>()) << model;
    }
    std::cout << model << ": golden prompts checked\n";
  }
}

}  // namespace
}  // namespace sluice::text
