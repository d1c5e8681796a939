// Operators by precedence, operands, tuples.
#include <algorithm>

#include "text/jinja/parser.h"

namespace sluice::text::jinja {
namespace {

std::string describe(const Token& token) {
  switch (token.type) {
    case TokenType::kEnd: return "the end of the template";
    case TokenType::kText: return "text";
    case TokenType::kOutputBegin: case TokenType::kTagBegin: return "a tag";
    case TokenType::kOutputEnd: case TokenType::kTagEnd: return "the end of a tag";
    case TokenType::kString: return "a string";
    case TokenType::kInt: case TokenType::kFloat: return "a number";
    default: return "'" + token.text.substr(0, 40) + "'";
  }
}

}  // namespace

void ExprParser::fail(std::string message) const { throw Failure{std::move(message), peek().line, false}; }
void ExprParser::unexpected(std::string_view wanted) const { fail("expected " + std::string(wanted) + ", found " + describe(peek())); }

bool ExprParser::skip_op(std::string_view op) { return is_op(op) && (take(), true); }
bool ExprParser::skip_name(std::string_view name) { return is_name(name) && (take(), true); }
void ExprParser::expect_op(std::string_view op) {
  if (!skip_op(op)) unexpected("'" + std::string(op) + "'");
}
void ExprParser::expect_name(std::string_view name) {
  if (!skip_name(name)) unexpected("'" + std::string(name) + "'");
}
std::string ExprParser::expect_identifier() {
  if (peek().type != TokenType::kName) unexpected("a name");
  return take().text;
}

Expr* ExprParser::make(ExprKind kind, std::vector<const Expr*> items) {
  Expr& node = ast_.exprs.emplace_back();
  node.kind = kind;
  node.line = peek().line;
  node.items = std::move(items);
  // Also bounds long chains like a + a + a..., which nest to the left without nesting the parser.
  for (const Expr* item : node.items)
    if (item != nullptr) node.depth = std::max(node.depth, item->depth + 1);
  if (node.depth > kMaxDepth) fail("an expression is nested deeper than " + std::to_string(kMaxDepth));
  return &node;
}

Expr* ExprParser::name_node(const std::string& name) {
  Expr* node = make(ExprKind::kName);
  node->name = name;
  node->name_id = ast_.intern(name);
  return node;
}

Expr* ExprParser::expression(bool conditional) {
  const Level level(*this);
  Expr* node = either();
  while (conditional && skip_name("if")) {
    Expr* condition = either();
    Expr* otherwise = skip_name("else") ? expression() : nullptr;
    node = make(ExprKind::kCond, {node, condition, otherwise});
  }
  return node;
}

Expr* ExprParser::either() {
  Expr* node = both();
  while (skip_name("or")) {
    Expr* right = both();
    node = make(ExprKind::kOr, {node, right});
  }
  return node;
}

Expr* ExprParser::both() {
  Expr* node = negation();
  while (skip_name("and")) {
    Expr* right = negation();
    node = make(ExprKind::kAnd, {node, right});
  }
  return node;
}

Expr* ExprParser::negation() {
  if (!skip_name("not")) return comparison();
  const Level level(*this);
  return make(ExprKind::kNot, {negation()});
}

Expr* ExprParser::comparison() {
  static constexpr std::pair<std::string_view, Op> kOps[] = {{"==", Op::kEq}, {"!=", Op::kNe}, {"<", Op::kLt}, {"<=", Op::kLe}, {">", Op::kGt}, {">=", Op::kGe}};
  std::vector<const Expr*> items = {sum()};
  std::vector<Op> ops;
  while (true) {
    bool found = false;
    for (const auto& [text, op] : kOps) {
      if (!skip_op(text)) continue;
      ops.push_back(op);
      found = true;
      break;
    }
    if (!found && skip_name("in")) {
      ops.push_back(Op::kIn);
    } else if (!found && is_name("not") && is_name("in", 1)) {
      take();
      take();
      ops.push_back(Op::kNotIn);
    } else if (!found) {
      break;
    }
    items.push_back(sum());
  }
  if (ops.empty()) return const_cast<Expr*>(items[0]);
  Expr* node = make(ExprKind::kCompare, std::move(items));
  node->ops = std::move(ops);
  return node;
}

Expr* ExprParser::sum() {
  Expr* node = concat();
  while (is_op("+") || is_op("-")) {
    const Op op = take().text == "+" ? Op::kAdd : Op::kSub;
    Expr* right = concat();
    node = make(ExprKind::kBinary, {node, right});
    node->ops = {op};
  }
  return node;
}

Expr* ExprParser::concat() {
  std::vector<const Expr*> items = {product()};
  while (skip_op("~")) items.push_back(product());
  return items.size() == 1 ? const_cast<Expr*>(items[0]) : make(ExprKind::kConcat, std::move(items));
}

Expr* ExprParser::product() {
  Expr* node = power();
  while (is_op("*") || is_op("/") || is_op("//") || is_op("%")) {
    const std::string text = take().text;
    Expr* right = power();
    node = make(ExprKind::kBinary, {node, right});
    node->ops = {text == "*" ? Op::kMul : text == "/" ? Op::kDiv : text == "//" ? Op::kFloorDiv : Op::kMod};
  }
  return node;
}

Expr* ExprParser::power() {
  Expr* node = unary(true);
  while (skip_op("**")) {
    Expr* right = unary(true);
    node = make(ExprKind::kBinary, {node, right});
    node->ops = {Op::kPow};
  }
  return node;
}

Expr* ExprParser::unary(bool with_filters) {
  const Level level(*this);
  Expr* node;
  if (skip_op("-")) node = make(ExprKind::kNeg, {unary(false)});
  else if (skip_op("+")) node = make(ExprKind::kPos, {unary(false)});
  else node = primary();
  node = postfix(node);
  return with_filters ? filters_and_tests(node) : node;
}

Expr* ExprParser::primary() {
  const Token token = peek();
  if (token.type == TokenType::kName) {
    take();
    const std::string& name = token.text;
    if (name == "true" || name == "True" || name == "false" || name == "False" || name == "none" || name == "None") {
      Expr* node = make(ExprKind::kLiteral);
      node->literal = name[0] == 'n' || name[0] == 'N' ? Value::none() : Value::of(name[0] == 't' || name[0] == 'T');
      return node;
    }
    return name_node(name);
  }
  if (token.type == TokenType::kString) {
    std::string text;
    while (peek().type == TokenType::kString) text += take().text;
    Expr* node = make(ExprKind::kLiteral);
    node->literal = Value::of(Marked(text, false));
    return node;
  }
  if (token.type == TokenType::kInt || token.type == TokenType::kFloat) {
    take();
    Expr* node = make(ExprKind::kLiteral);
    node->literal = token.type == TokenType::kInt ? Value::of(token.integer) : Value::of(token.real);
    return node;
  }
  if (skip_op("(")) {
    Expr* node = tuple(true, true);
    expect_op(")");
    return node;
  }
  if (skip_op("[")) return list();
  if (skip_op("{")) return dict();
  unexpected("an expression");
}

Expr* ExprParser::tuple(bool conditional, bool parenthesised) {
  std::vector<const Expr*> items;
  bool is_tuple = false;
  const auto at_end = [&] {
    return peek().type == TokenType::kTagEnd || peek().type == TokenType::kOutputEnd || is_op(")") || is_name("recursive");
  };
  while (!at_end()) {
    items.push_back(expression(conditional));
    if (!skip_op(",")) break;
    is_tuple = true;
  }
  if (!is_tuple && items.size() == 1) return const_cast<Expr*>(items[0]);
  if (items.empty() && !parenthesised) unexpected("an expression");
  return make(ExprKind::kTuple, std::move(items));
}

Expr* ExprParser::target() {
  std::vector<const Expr*> items;
  bool is_tuple = false;
  do {
    if (!items.empty() && (is_name("in") || is_op("=") || is_op(")"))) break;
    if (skip_op("(")) {
      const Level level(*this);
      items.push_back(target());
      expect_op(")");
    } else {
      Expr* node = name_node(expect_identifier());
      if (skip_op(".")) {
        node = make(ExprKind::kAttr, {node});
        node->name = expect_identifier();
      }
      items.push_back(node);
    }
  } while (skip_op(",") && (is_tuple = true));
  return is_tuple ? make(ExprKind::kTuple, std::move(items)) : const_cast<Expr*>(items[0]);
}

Expr* ExprParser::list() {
  std::vector<const Expr*> items;
  while (!is_op("]")) {
    items.push_back(expression());
    if (!skip_op(",")) break;
  }
  expect_op("]");
  return make(ExprKind::kList, std::move(items));
}

Expr* ExprParser::dict() {
  std::vector<const Expr*> items;
  while (!is_op("}")) {
    items.push_back(expression());
    expect_op(":");
    items.push_back(expression());
    if (!skip_op(",")) break;
  }
  expect_op("}");
  return make(ExprKind::kDict, std::move(items));
}

}  // namespace sluice::text::jinja
