// Parser: tokens to Ast. parse_template is pure, any thread. Errors: throws Failure (inside jinja/ alone).
#pragma once
#include <algorithm>
#include <string_view>

#include "text/jinja/ast.h"
#include "text/jinja/failure.h"
#include "text/jinja/lexer.h"

namespace sluice::text::jinja {

void parse_template(std::string_view source, Ast& ast);

// Expressions; the statement parser builds on it.
class ExprParser {
 protected:
  explicit ExprParser(std::vector<Token> tokens, Ast& ast) : tokens_(std::move(tokens)), ast_(ast) {}

  const Token& peek(size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  const Token& take() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool is_op(std::string_view op, size_t ahead = 0) const { return peek(ahead).type == TokenType::kOp && peek(ahead).text == op; }
  bool is_name(std::string_view name, size_t ahead = 0) const { return peek(ahead).type == TokenType::kName && peek(ahead).text == name; }
  bool skip_op(std::string_view op);
  bool skip_name(std::string_view name);
  void expect_op(std::string_view op);
  void expect_name(std::string_view name);
  std::string expect_identifier();
  [[noreturn]] void fail(std::string message) const;
  [[noreturn]] void unexpected(std::string_view wanted) const;

  Expr* expression(bool conditional = true);
  // One expression, or several with commas between as a tuple.
  Expr* tuple(bool conditional = true, bool parenthesised = false);
  Expr* target();
  // `|f(x)|g` over `input`, which may be nullptr; the first `|` is optional when inline.
  Expr* filters(Expr* input, bool inline_first);
  Expr* make(ExprKind kind, std::vector<const Expr*> items = {});
  Expr* name_node(const std::string& name);

  // Nesting of what is being parsed; the destructor leaves one level.
  struct Level {
    explicit Level(ExprParser& parser) : parser_(parser) {
      if (++parser_.depth_ > kMaxDepth) parser_.fail("nested deeper than " + std::to_string(kMaxDepth));
    }
    ~Level() { --parser_.depth_; }
    ExprParser& parser_;
  };

  std::vector<Token> tokens_;
  Ast& ast_;
  size_t at_ = 0;
  int depth_ = 0;

 private:
  Expr* either();
  Expr* both();
  Expr* negation();
  Expr* comparison();
  Expr* sum();
  Expr* concat();
  Expr* product();
  Expr* power();
  Expr* unary(bool with_filters);
  Expr* primary();
  Expr* list();
  Expr* dict();
  Expr* postfix(Expr* node);
  Expr* subscript(Expr* node);
  Expr* filters_and_tests(Expr* node);
  Expr* test(Expr* node);
  void arguments(Expr* call);
};

}  // namespace sluice::text::jinja
