#include <algorithm>

#include "text/jinja/parser.h"

namespace sluice::text::jinja {
namespace {

class Parser final : public ExprParser {
 public:
  Parser(std::vector<Token> tokens, Ast& ast) : ExprParser(std::move(tokens), ast) {}

  void run() {
    ast_.body = block({});
    if (peek().type != TokenType::kEnd) unexpected("the end of the template");
  }

 private:
  Stmt* make_stmt(StmtKind kind) {
    Stmt& stmt = ast_.stmts.emplace_back();
    stmt.kind = kind;
    stmt.line = peek().line;
    return &stmt;
  }

  // Statements until a tag that begins with one of `ends`, which stays current (its opening is consumed).
  Block block(std::initializer_list<std::string_view> ends) {
    const Level level(*this);
    Block body;
    while (true) {
      const Token& token = peek();
      if (token.type == TokenType::kEnd) {
        if (ends.size() != 0) unexpected("'" + std::string(*(ends.end() - 1)) + "'");
        return body;
      }
      if (token.type == TokenType::kText) {
        Stmt* stmt = make_stmt(StmtKind::kText);
        stmt->text = Marked(take().text, false);
        body.push_back(stmt);
      } else if (token.type == TokenType::kOutputBegin) {
        take();
        Stmt* stmt = make_stmt(StmtKind::kOutput);
        stmt->expr = tuple();
        if (take().type != TokenType::kOutputEnd) end_missing();
        body.push_back(stmt);
      } else {
        take();  // the opening of a tag
        if (peek().type != TokenType::kName) unexpected("the name of a tag");
        if (std::find(ends.begin(), ends.end(), peek().text) != ends.end()) return body;
        body.push_back(statement());
      }
    }
  }
  [[noreturn]] void end_missing() {
    if (at_ > 0) --at_;
    unexpected("the end of the tag");
  }
  void end_tag() {
    if (peek().type != TokenType::kTagEnd) unexpected("the end of the tag");
    take();
  }
  Block block_to(std::string_view end) {
    Block body = block({end});
    expect_name(end);
    end_tag();
    return body;
  }

  Stmt* statement() {
    const std::string name = take().text;
    if (name == "if") return if_statement();
    if (name == "for") return for_statement();
    if (name == "set") return set_statement();
    if (name == "macro") return macro_statement();
    if (name == "filter") return filter_statement();
    if (name == "generation") {
      Stmt* stmt = make_stmt(StmtKind::kScope);
      end_tag();
      stmt->body = block_to("endgeneration");
      return stmt;
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) fail("'" + name + "' outside a loop");
      Stmt* stmt = make_stmt(name == "break" ? StmtKind::kBreak : StmtKind::kContinue);
      end_tag();
      return stmt;
    }
    --at_;
    fail("the tag '" + name.substr(0, 40) + "' is not supported here");
  }

  Stmt* if_statement() {
    Stmt* stmt = make_stmt(StmtKind::kIf);
    const Expr* condition = tuple(false);
    end_tag();
    while (true) {
      Block body = condition == nullptr ? block({"endif"}) : block({"elif", "else", "endif"});
      stmt->branches.push_back({condition, std::move(body)});
      const std::string next = take().text;
      if (next == "endif") break;
      condition = next == "elif" ? tuple(false) : nullptr;
      end_tag();
    }
    end_tag();
    return stmt;
  }

  Stmt* for_statement() {
    Stmt* stmt = make_stmt(StmtKind::kFor);
    stmt->target = target();
    check_target(stmt->target, false);
    expect_name("in");
    stmt->expr = tuple(false);
    if (skip_name("if")) stmt->condition = expression();
    if (is_name("recursive")) fail("recursive loops are not supported");
    end_tag();
    ++loops_;
    stmt->body = block({"else", "endfor"});
    --loops_;
    if (skip_name("else")) {
      end_tag();
      stmt->otherwise = block({"endfor"});
    }
    expect_name("endfor");
    end_tag();
    return stmt;
  }

  void check_target(const Expr* target, bool attributes) {
    if (target->kind == ExprKind::kAttr && !attributes) fail("only {% set %} assigns to an attribute");
    if (target->kind == ExprKind::kTuple)
      for (const Expr* item : target->items) check_target(item, attributes);
  }

  Stmt* set_statement() {
    Stmt* stmt = make_stmt(StmtKind::kSet);
    stmt->target = target();
    check_target(stmt->target, true);
    if (skip_op("=")) {
      stmt->expr = tuple();
      end_tag();
      return stmt;
    }
    stmt->kind = StmtKind::kSetBlock;
    if (is_op("|")) stmt->expr = filters(nullptr, false);
    end_tag();
    stmt->body = block_to("endset");
    return stmt;
  }

  Stmt* macro_statement() {
    Stmt* stmt = make_stmt(StmtKind::kMacro);
    stmt->name = expect_identifier();
    stmt->name_id = ast_.intern(stmt->name);
    expect_op("(");
    while (!is_op(")")) {
      Parameter parameter{expect_identifier(), -1, nullptr};
      parameter.name_id = ast_.intern(parameter.name);
      if (skip_op("=")) parameter.fallback = expression();
      else if (!stmt->parameters.empty() && stmt->parameters.back().fallback != nullptr) fail("a parameter without a default follows one with");
      stmt->parameters.push_back(std::move(parameter));
      if (!skip_op(",")) break;
    }
    expect_op(")");
    end_tag();
    const int outer_loops = std::exchange(loops_, 0);
    stmt->body = block_to("endmacro");
    loops_ = outer_loops;
    return stmt;
  }

  Stmt* filter_statement() {
    Stmt* stmt = make_stmt(StmtKind::kFilter);
    stmt->expr = filters(nullptr, true);
    end_tag();
    stmt->body = block_to("endfilter");
    return stmt;
  }

  int loops_ = 0;  // open around what is being parsed
};

}  // namespace

void parse_template(std::string_view source, Ast& ast) { Parser(lex(source), ast).run(); }

}  // namespace sluice::text::jinja
