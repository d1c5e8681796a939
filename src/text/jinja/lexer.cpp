#include "text/jinja/lexer.h"

#include <charconv>

#include "text/jinja/failure.h"
#include "text/jinja/string_literal.h"
#include "text/utf8.h"

namespace sluice::text::jinja {
namespace {

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || static_cast<uint8_t>(c) >= 0x80; }

// Python's str.rstrip() length.
size_t stripped_length(std::string_view s) {
  size_t keep = 0;
  for (size_t i = 0; i < s.size();) {
    const Utf8Char c = utf8_at(s, i);
    i += c.length;
    if (!c.valid || !is_unicode_space(c.code)) keep = i;
  }
  return keep;
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) {
    src_.reserve(source.size());
    for (size_t i = 0; i < source.size(); ++i) {
      if (source[i] != '\r') src_ += source[i];
      else if (i + 1 == source.size() || source[i + 1] != '\n') src_ += '\n';
    }
    if (!src_.empty() && src_.back() == '\n') src_.pop_back();
  }

  std::vector<Token> run() {
    while (at_ < src_.size()) {
      const size_t open = find_open();
      if (open == std::string::npos) {
        push_text(std::string_view(src_).substr(at_));
        at_ = src_.size();
        break;
      }
      text_before(open);
      at_ = open + 2;
      if (sign_at(at_)) ++at_;
      switch (src_[open + 1]) {
        case '#': comment(); break;
        case '{': expression(TokenType::kOutputBegin, TokenType::kOutputEnd, "}}"); break;
        default:
          if (!raw()) expression(TokenType::kTagBegin, TokenType::kTagEnd, "%}");
      }
    }
    push(TokenType::kEnd);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(std::string message) { throw Failure{std::move(message), line_now(), false}; }
  bool sign_at(size_t pos) const { return pos < src_.size() && (src_[pos] == '-' || src_[pos] == '+'); }

  // Lines are counted forward from the last place asked for.
  int line_now() {
    for (; counted_ < at_ && counted_ < src_.size(); ++counted_)
      if (src_[counted_] == '\n') ++line_;
    return line_;
  }
  Token& push(TokenType type, std::string text = {}) {
    tokens_.push_back({type, line_now(), std::move(text), 0, 0});
    return tokens_.back();
  }
  void push_text(std::string_view text) {
    if (!text.empty()) push(TokenType::kText, std::string(text));
  }

  size_t find_open() const {
    for (size_t i = src_.find('{', at_); i != std::string::npos && i + 1 < src_.size(); i = src_.find('{', i + 1))
      if (src_[i + 1] == '{' || src_[i + 1] == '%' || src_[i + 1] == '#') return i;
    return std::string::npos;
  }

  // Emits what stands before the tag at `open`, less what `-` or lstrip_blocks takes away.
  void text_before(size_t open) {
    std::string_view text = std::string_view(src_).substr(at_, open - at_);
    const char sign = open + 2 < src_.size() ? src_[open + 2] : ' ';
    if (sign == '-') {
      text = text.substr(0, stripped_length(text));
    } else if (sign != '+' && src_[open + 1] != '{') {
      const size_t newline = text.rfind('\n');
      const size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
      if ((begin > 0 || at_line_start_) && stripped_length(text.substr(begin)) == 0) text = text.substr(0, begin);
    }
    push_text(text);
  }

  void skip_spaces() {
    while (at_ < src_.size()) {
      const Utf8Char c = utf8_at(src_, at_);
      if (!c.valid || !is_unicode_space(c.code)) break;
      at_ += c.length;
    }
  }

  // After a closing delimiter: '-' swallows all whitespace, '+' nothing, otherwise a block or comment takes one newline.
  void after_close(char sign, bool block) {
    if (sign == '-') skip_spaces();
    else if (sign != '+' && block && at_ < src_.size() && src_[at_] == '\n') ++at_;
    at_line_start_ = at_ > 0 && src_[at_ - 1] == '\n';
  }

  void comment() {
    const size_t begin = at_, close = src_.find("#}", at_);
    if (close == std::string::npos) fail("a comment is not closed");
    const char sign = close > begin ? src_[close - 1] : ' ';
    at_ = close + 2;
    after_close(sign, true);
  }

  // At a block's inside: is it `raw`? Then consumes through endraw.
  bool raw() {
    size_t i = at_;
    const auto spaces = [&] { while (i < src_.size() && is_unicode_space(static_cast<uint8_t>(src_[i]))) ++i; };
    const auto word = [&](std::string_view w) { return src_.compare(i, w.size(), w) == 0 ? (i += w.size(), true) : false; };
    spaces();
    if (!word("raw")) return false;
    spaces();
    const char sign = i < src_.size() && src_[i] == '-' ? src_[i++] : ' ';
    if (!word("%}")) return false;
    at_ = i;
    after_close(sign, true);
    for (size_t open = src_.find("{%", at_); open != std::string::npos; open = src_.find("{%", open + 2)) {
      i = open + 2;
      if (sign_at(i)) ++i;
      spaces();
      if (!word("endraw")) continue;
      spaces();
      const char end_sign = i < src_.size() && (src_[i] == '-' || src_[i] == '+') ? src_[i++] : ' ';
      if (!word("%}")) continue;
      text_before(open);
      at_ = i;
      after_close(end_sign, true);
      return true;
    }
    fail("a raw block is not closed");
  }

  bool closes(std::string_view close, bool block) {
    const char c = src_[at_];
    const bool sign = c == '-' || (block && c == '+');
    const size_t from = at_ + (sign ? 1 : 0);
    if (src_.compare(from, 2, close) != 0) return false;
    push(block ? TokenType::kTagEnd : TokenType::kOutputEnd);
    at_ = from + 2;
    after_close(sign ? c : ' ', block);
    return true;
  }

  void expression(TokenType begin, TokenType end, std::string_view close) {
    push(begin);
    std::string brackets;
    while (true) {
      skip_spaces();
      if (at_ >= src_.size()) fail("a tag is not closed");
      if (brackets.empty() && closes(close, end == TokenType::kTagEnd)) return;
      const char c = src_[at_];
      if (is_digit(c)) number();
      else if (is_name_start(c)) name();
      else if (c == '"' || c == '\'') string(c);
      else op(brackets);
    }
  }

  void name() {
    const size_t begin = at_;
    while (at_ < src_.size() && (is_name_start(src_[at_]) || is_digit(src_[at_]))) ++at_;
    push(TokenType::kName, src_.substr(begin, at_ - begin));
  }

  void digits(std::string& into) {
    while (at_ < src_.size() && (is_digit(src_[at_]) || (src_[at_] == '_' && at_ + 1 < src_.size() && is_digit(src_[at_ + 1])))) {
      if (src_[at_] != '_') into += src_[at_];
      ++at_;
    }
  }

  void number() {
    std::string text;
    digits(text);
    bool real = false;
    if (at_ + 1 < src_.size() && src_[at_] == '.' && is_digit(src_[at_ + 1])) {
      real = true;
      text += src_[at_++];
      digits(text);
    }
    size_t e = at_;
    if (e < src_.size() && (src_[e] == 'e' || src_[e] == 'E')) {
      if (sign_at(++e)) ++e;
      if (e < src_.size() && is_digit(src_[e])) {
        real = true;
        text.append(src_, at_, e - at_);
        at_ = e;
        digits(text);
      }
    }
    Token& token = push(real ? TokenType::kFloat : TokenType::kInt);
    const char* const end = text.data() + text.size();
    const auto parsed = real ? std::from_chars(text.data(), end, token.real) : std::from_chars(text.data(), end, token.integer);
    if (parsed.ec != std::errc() || parsed.ptr != end) fail("a number is out of range");
  }

  void string(char quote) {
    size_t end = at_ + 1;
    while (end < src_.size() && src_[end] != quote) end += src_[end] == '\\' ? 2 : 1;
    if (end >= src_.size()) fail("a string is not closed");
    push(TokenType::kString, unescape_string(std::string_view(src_).substr(at_ + 1, end - at_ - 1)));
    at_ = end + 1;
  }

  void op(std::string& brackets) {
    static constexpr std::string_view kPairs[] = {"//", "**", "==", "!=", ">=", "<="};
    const std::string_view rest = std::string_view(src_).substr(at_);
    size_t length = 0;
    for (const std::string_view pair : kPairs)
      if (rest.substr(0, 2) == pair) length = 2;
    const char c = rest[0];
    if (length == 0 && std::string_view("+-/*%~[](){}<>=.:|,;").find(c) != std::string_view::npos) length = 1;
    if (length == 0) fail("unexpected character in a tag");
    if (c == '(' || c == '[' || c == '{') {
      brackets += c == '(' ? ')' : c == '[' ? ']' : '}';
    } else if (c == ')' || c == ']' || c == '}') {
      if (brackets.empty() || brackets.back() != c) fail(std::string("unexpected '") + c + "'");
      brackets.pop_back();
    }
    push(TokenType::kOp, std::string(rest.substr(0, length)));
    at_ += length;
  }

  std::string src_;
  size_t at_ = 0;
  bool at_line_start_ = true;
  size_t counted_ = 0;
  int line_ = 1;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> lex(std::string_view source) { return Lexer(source).run(); }

}  // namespace sluice::text::jinja
