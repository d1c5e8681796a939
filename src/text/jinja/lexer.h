// Lexer: template source to tokens, with the whitespace rules of trim_blocks and lstrip_blocks already applied.
// A pure function, any thread. Errors: throws Failure (inside jinja/ alone).
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::text::jinja {

enum class TokenType : uint8_t { kText, kOutputBegin, kOutputEnd, kTagBegin, kTagEnd, kName, kString, kInt, kFloat, kOp, kEnd };

struct Token {
  TokenType type = TokenType::kEnd;
  int line = 1;
  std::string text;     // of text, name, operator; the unescaped value of a string
  int64_t integer = 0;
  double real = 0;
};

// The last token is kEnd.
std::vector<Token> lex(std::string_view source);

}  // namespace sluice::text::jinja
