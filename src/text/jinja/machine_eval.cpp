// Expressions of a render.
#include "text/jinja/builtins.h"
#include "text/jinja/machine.h"
#include "text/jinja/machine_scope.h"
#include "text/jinja/operations.h"
#include "text/jinja/render_text.h"

namespace sluice::text::jinja {

Value Machine::eval(const Expr& expr) {
  const Deeper deeper(*this);
  charge();
  line_ = expr.line;
  return eval_inner(expr);
}

Value Machine::eval_inner(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::kLiteral: return expr.literal;
    case ExprKind::kName: return eval_name(expr);
    case ExprKind::kList: return eval_items(expr, false);
    case ExprKind::kTuple: return eval_items(expr, true);
    case ExprKind::kDict: return eval_dict(expr);
    case ExprKind::kAttr: return attribute(*this, eval(*expr.items[0]), expr.name);
    case ExprKind::kIndex: return eval_index(expr);
    case ExprKind::kSlice: return eval_slice(expr);
    case ExprKind::kCall: return eval_call(expr);
    case ExprKind::kFilter: return eval_filter(expr);
    case ExprKind::kTest: return Value::of(eval_test(expr));
    case ExprKind::kNot: return Value::of(!truthy(eval(*expr.items[0])));
    case ExprKind::kNeg: return negate(*this, eval(*expr.items[0]));
    case ExprKind::kPos: return eval(*expr.items[0]);
    case ExprKind::kConcat: return eval_concat(expr);
    case ExprKind::kCompare: return eval_compare(expr);
    case ExprKind::kAnd:
    case ExprKind::kOr: {
      Value left = eval(*expr.items[0]);
      return truthy(left) == (expr.kind == ExprKind::kOr) ? left : eval(*expr.items[1]);
    }
    case ExprKind::kBinary: {
      const Value left = eval(*expr.items[0]);
      const Value right = eval(*expr.items[1]);
      line_ = expr.line;
      return binary(*this, expr.ops[0], left, right);
    }
    case ExprKind::kCond:
      if (truthy(eval(*expr.items[1]))) return eval(*expr.items[0]);
      return expr.items[2] != nullptr ? eval(*expr.items[2]) : Value::undefined();
  }
  return Value::undefined();
}

Value Machine::eval_name(const Expr& expr) {
  for (Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    charge(scope->variables.size() / 16);
    if (const Value* value = scope->find(expr.name_id)) return *value;
  }
  if (const GlobalFn global = find_global(expr.name)) {
    Value value = Value::of(Type::kGlobal);
    value.global = global;
    return value;
  }
  return Value::undefined(&expr.name);
}

Value Machine::eval_items(const Expr& expr, bool tuple) {
  std::vector<Value> items;
  items.reserve(expr.items.size());
  for (const Expr* item : expr.items) items.push_back(eval(*item));
  return list(std::move(items), tuple);
}

Value Machine::eval_dict(const Expr& expr) {
  Dict* dict = new_dict();
  for (size_t i = 0; i + 1 < expr.items.size(); i += 2) {
    Value key = eval(*expr.items[i]);
    std::string canonical = canonical_key(*this, key);
    dict->put(std::move(canonical), std::move(key), eval(*expr.items[i + 1]));
  }
  return Value::of(dict);
}

Value Machine::eval_index(const Expr& expr) {
  const Value container = eval(*expr.items[0]);
  const Value key = eval(*expr.items[1]);
  line_ = expr.line;
  return item(*this, container, key);
}

Value Machine::eval_slice(const Expr& expr) {
  const Value container = eval(*expr.items[0]);
  Value parts[3];
  for (size_t i = 0; i < 3; ++i) parts[i] = expr.items[i + 1] != nullptr ? eval(*expr.items[i + 1]) : Value::none();
  return slice(*this, container, parts[0], parts[1], parts[2]);
}

void Machine::eval_args(const Expr& expr, Args& args) {
  args.positional.reserve(expr.items.size() - 1);
  for (size_t i = 1; i < expr.items.size(); ++i) args.positional.push_back(eval(*expr.items[i]));
  for (const auto& [name, value] : expr.named) args.named.emplace_back(&name, eval(*value));
}

Value Machine::eval_call(const Expr& expr) {
  const Expr& callee = *expr.items[0];
  Args args;
  if (callee.kind == ExprKind::kAttr) {
    // The common x.method(...) needs no object for the bound method.
    const Value self = eval(*callee.items[0]);
    if (has_method(self, callee.name)) {
      eval_args(expr, args);
      line_ = expr.line;
      return call_method(*this, self, callee.name, args);
    }
    const Value function = attribute(*this, self, callee.name);
    eval_args(expr, args);
    line_ = expr.line;
    return call(function, args);
  }
  const Value function = eval(callee);
  eval_args(expr, args);
  line_ = expr.line;
  return call(function, args);
}

Value Machine::call(const Value& callee, const Args& args) {
  const Deeper deeper(*this);
  switch (callee.type) {
    case Type::kMacro: return call_macro(*callee.macro, args);
    case Type::kGlobal: return callee.global(*this, args);
    case Type::kMethod: return call_method(*this, callee.method->self, *callee.method->name, args);
    case Type::kUndefined: fail("'" + (callee.name != nullptr ? *callee.name : std::string("value")) + "' is undefined");
    default: fail("'" + std::string(type_name(callee)) + "' object is not callable");
  }
}

Value Machine::eval_filter(const Expr& expr) {
  const Value input = expr.items[0] != nullptr ? eval(*expr.items[0]) : block_input_ != nullptr ? *block_input_ : Value::undefined();
  Args args;
  eval_args(expr, args);
  line_ = expr.line;
  return expr.filter(*this, input, args);
}

Value Machine::call_filter(std::string_view name, const Value& input, const Args& args) {
  const FilterFn filter = find_filter(name);
  if (filter == nullptr) fail("no filter is named '" + std::string(name) + "'");
  const Deeper deeper(*this);
  charge();
  return filter(*this, input, args);
}

Value Machine::apply_chain(const Expr* chain, Value input) {
  const Value* const outer = std::exchange(block_input_, &input);
  Value result = eval(*chain);
  block_input_ = outer;
  return result;
}

bool Machine::eval_test(const Expr& expr) {
  const Value input = eval(*expr.items[0]);
  Args args;
  eval_args(expr, args);
  line_ = expr.line;
  return expr.test(*this, input, args);
}

Value Machine::eval_concat(const Expr& expr) {
  Marked joined;
  for (const Expr* part : expr.items) {
    joined.append(to_text(*this, eval(*part)));
    if (joined.size() > kMaxText) break;  // text() reports it
  }
  return text(std::move(joined));
}

Value Machine::eval_compare(const Expr& expr) {
  Value left = eval(*expr.items[0]);
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    Value right = eval(*expr.items[i + 1]);
    line_ = expr.line;
    bool holds = false;
    switch (expr.ops[i]) {
      case Op::kEq: holds = equal(*this, left, right); break;
      case Op::kNe: holds = !equal(*this, left, right); break;
      case Op::kLt: holds = order(*this, left, right) < 0; break;
      case Op::kLe: holds = order(*this, left, right) <= 0; break;
      case Op::kGt: holds = order(*this, left, right) > 0; break;
      case Op::kGe: holds = order(*this, left, right) >= 0; break;
      case Op::kIn: holds = contains(*this, right, left); break;
      default: holds = !contains(*this, right, left);
    }
    if (!holds) return Value::of(false);
    left = std::move(right);
  }
  return Value::of(true);
}

}  // namespace sluice::text::jinja
