// What follows an operand: attributes, items, calls, filters, tests.
#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/parser.h"

namespace sluice::text::jinja {

Expr* ExprParser::postfix(Expr* node) {
  while (true) {
    if (skip_op(".")) {
      if (peek().type == TokenType::kInt) {
        Expr* index = make(ExprKind::kLiteral);
        index->literal = Value::of(take().integer);
        node = make(ExprKind::kIndex, {node, index});
        continue;
      }
      node = make(ExprKind::kAttr, {node});
      node->name = expect_identifier();
    } else if (skip_op("[")) {
      node = subscript(node);
    } else if (is_op("(")) {
      node = make(ExprKind::kCall, {node});
      arguments(node);
    } else {
      return node;
    }
  }
}

// After '[': an index, or start:stop:step with any part left out.
Expr* ExprParser::subscript(Expr* node) {
  const Expr* parts[3] = {nullptr, nullptr, nullptr};
  size_t colons = 0;
  while (!is_op("]")) {
    if (skip_op(":")) {
      if (++colons > 2) unexpected("']'");
      continue;
    }
    if (parts[colons] != nullptr) unexpected("']'");
    parts[colons] = expression();
    if (is_op(",")) fail("a tuple as an index is not supported");
  }
  expect_op("]");
  if (colons > 0) return make(ExprKind::kSlice, {node, parts[0], parts[1], parts[2]});
  if (parts[0] == nullptr) fail("an index is empty");
  return make(ExprKind::kIndex, {node, parts[0]});
}

Expr* ExprParser::filters_and_tests(Expr* node) {
  while (true) {
    if (is_op("|")) {
      node = filters(node, false);
    } else if (skip_name("is")) {
      node = test(node);
    } else if (is_op("(")) {
      node = make(ExprKind::kCall, {node});
      arguments(node);
    } else {
      return node;
    }
  }
}

Expr* ExprParser::filters(Expr* input, bool inline_first) {
  while (inline_first || skip_op("|")) {
    inline_first = false;
    const std::string name = expect_identifier();
    const FilterFn filter = find_filter(name);
    if (filter == nullptr) fail("no filter is named '" + name + "'");
    input = make(ExprKind::kFilter, {input});
    input->name = name;
    input->filter = filter;
    if (is_op("(")) arguments(input);
  }
  return input;
}

Expr* ExprParser::test(Expr* node) {
  const bool negated = skip_name("not");
  const std::string name = expect_identifier();
  Expr* made = make(ExprKind::kTest, {node});
  made->name = name;
  made->test = find_test(name);
  if (made->test == nullptr) fail("no test is named '" + name + "'");
  const TokenType next = peek().type;
  const bool keyword = is_name("else") || is_name("or") || is_name("and") || is_name("if") || is_name("is") || is_name("not") || is_name("in");
  if (is_op("(")) {
    arguments(made);
  } else if ((next == TokenType::kName && !keyword) || next == TokenType::kString || next == TokenType::kInt || next == TokenType::kFloat ||
             is_op("[") || is_op("{")) {
    Expr* argument = postfix(primary());
    made->items.push_back(argument);
    made->depth = std::max(made->depth, argument->depth + 1);
  }
  return negated ? make(ExprKind::kNot, {made}) : made;
}

void ExprParser::arguments(Expr* call) {
  const Level level(*this);
  expect_op("(");
  while (!is_op(")")) {
    if (is_op("*") || is_op("**")) fail("* and ** arguments are not supported");
    const Expr* value;
    if (peek().type == TokenType::kName && is_op("=", 1)) {
      const std::string name = take().text;
      take();
      value = expression();
      call->named.emplace_back(name, value);
    } else {
      if (!call->named.empty()) fail("a positional argument follows a named one");
      value = expression();
      call->items.push_back(value);
    }
    call->depth = std::max(call->depth, value->depth + 1);
    if (call->depth > kMaxDepth) fail("an expression is nested deeper than " + std::to_string(kMaxDepth));
    if (!skip_op(",")) break;
  }
  expect_op(")");
}

}  // namespace sluice::text::jinja
