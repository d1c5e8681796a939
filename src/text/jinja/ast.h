// The parsed template. Nodes live in the Program's deques and point at each other, so that destroying a deep tree does not
// recurse. Immutable after parsing; any thread.
#pragma once
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace sluice::text::jinja {

using FilterFn = Value (*)(Machine&, const Value& input, const Args&);
using TestFn = bool (*)(Machine&, const Value& input, const Args&);

enum class Op : uint8_t { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow, kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

enum class ExprKind : uint8_t {
  kLiteral,
  kName,
  kList,     // items
  kTuple,    // items
  kDict,     // items: key, value, key, value...
  kAttr,     // items[0].name
  kIndex,    // items[0][items[1]]
  kSlice,    // items[0][items[1]:items[2]:items[3]], each of the last three may be nullptr
  kCall,     // items[0](items[1...], named)
  kFilter,   // items[0] | filter(items[1...], named); items[0] is nullptr for the content of a block
  kTest,     // items[0] is test(items[1...], named)
  kNot, kNeg, kPos,
  kAnd, kOr,
  kBinary,   // items[0] ops[0] items[1]
  kConcat,   // items joined as text
  kCompare,  // items[0] ops[0] items[1] ops[1] items[2]...
  kCond,     // items[0] if items[1] else items[2] (may be nullptr)
};

struct Expr {
  ExprKind kind;
  int line = 0;
  int depth = 1;  // of the tree below, itself included
  std::string name;
  int name_id = -1;  // kName: interned
  Value literal;
  std::vector<const Expr*> items;
  std::vector<std::pair<std::string, const Expr*>> named;
  std::vector<Op> ops;
  FilterFn filter = nullptr;
  TestFn test = nullptr;
};

using Block = std::vector<const Stmt*>;

enum class StmtKind : uint8_t {
  kText, kOutput,
  kIf,        // branches
  kFor,       // target in expr if condition: body else otherwise
  kSet,       // target = expr
  kSetBlock,  // target = output of body, through expr (a filter chain) if given
  kMacro,     // name(parameters): body
  kFilter,    // expr (a filter chain) over the output of body
  kScope,     // body in a scope of its own
  kBreak, kContinue,
};

struct Branch {
  const Expr* condition;  // nullptr: else
  Block body;
};

struct Parameter {
  std::string name;
  int name_id;
  const Expr* fallback;  // nullptr: undefined if not given
};

struct Stmt {
  StmtKind kind;
  int line = 0;
  Marked text;
  std::string name;
  int name_id = -1;
  const Expr* target = nullptr;
  const Expr* expr = nullptr;
  const Expr* condition = nullptr;
  std::vector<Branch> branches;
  std::vector<Parameter> parameters;
  Block body, otherwise;
};

struct Ast {
  std::deque<Expr> exprs;
  std::deque<Stmt> stmts;
  std::unordered_map<std::string, int> name_ids;
  Block body;

  int intern(const std::string& name) { return name_ids.emplace(name, static_cast<int>(name_ids.size())).first->second; }
  int find_name(const std::string& name) const {
    const auto it = name_ids.find(name);
    return it == name_ids.end() ? -1 : it->second;
  }
};

}  // namespace sluice::text::jinja
