// Machine: one render. Holds scopes, output, the objects it made, and the bounds on steps, depth and output bytes.
// Lives on one thread for one render. Errors: throws Failure (inside jinja/ alone).
#pragma once
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "text/jinja/ast.h"
#include "text/jinja/failure.h"

namespace sluice::text::jinja {

constexpr uint64_t kMaxSteps = 5'000'000;
constexpr size_t kMaxText = 16u << 20;     // bytes of the output, and of any one string
constexpr int64_t kMaxRange = 100'000;     // numbers in one range()
constexpr int kMaxEvalDepth = 4 * kMaxDepth;  // statements, expressions and macro calls open at once

// Variables of one scope; the innermost has the nearest.
class Scope : public Object {
 public:
  explicit Scope(Scope* parent) : parent(parent) {}
  Value* find(int name_id);
  void set(int name_id, Value value);
  void clear() { variables.clear(); }

  Scope* parent;
  bool captured = false;  // a macro remembers it: it must live as long as the render
  std::vector<std::pair<int, Value>> variables;
};

enum class Flow : uint8_t { kNext, kBreak, kContinue };

class Machine {
 public:
  explicit Machine(const Ast& ast) : ast_(ast) {}
  Marked run(const nlohmann::ordered_json& context);

  [[noreturn]] void fail(std::string message);
  // Counts work; fails when the render has used its steps.
  void charge(uint64_t steps = 1) {
    steps_ += steps;
    if (steps_ > kMaxSteps) fail("the template takes more than " + std::to_string(kMaxSteps) + " steps");
  }
  void charge_text(size_t bytes) { charge(1 + bytes / 64); }
  Value text(Marked s);  // checks and charges its size
  List* new_list();
  Dict* new_dict();
  Value list(std::vector<Value> items, bool tuple = false);
  Value bind(const Value& self, const std::string& name);
  // A copy of a name that lives as long as the render.
  const std::string& keep_name(std::string_view name);
  Value from_json(const nlohmann::ordered_json& json, bool user, int depth = 0);

  Value call(const Value& callee, const Args& args);
  Value call_filter(std::string_view name, const Value& input, const Args& args);
  // Whether nested data is too deep; for functions that recurse over values.
  void check_depth(int depth) {
    if (depth > kMaxDepth) fail("data is nested deeper than " + std::to_string(kMaxDepth));
  }

 private:
  struct Deeper;
  class NewScope;

  Flow run_block(const Block& block);
  Flow run_stmt(const Stmt& stmt);
  Flow run_if(const Stmt& stmt);
  Flow run_for(const Stmt& stmt);
  std::vector<Value> loop_items(const Stmt& stmt);
  void run_macro(const Stmt& stmt);
  Marked capture(const Block& block);
  void assign(const Expr& target, const Value& value);
  void emit(const Marked& text);

  Value eval(const Expr& expr);
  Value eval_inner(const Expr& expr);
  Value eval_name(const Expr& expr);
  Value eval_items(const Expr& expr, bool tuple);
  Value eval_dict(const Expr& expr);
  Value eval_slice(const Expr& expr);
  Value eval_call(const Expr& expr);
  Value eval_filter(const Expr& expr);
  Value eval_concat(const Expr& expr);
  Value eval_compare(const Expr& expr);
  bool eval_test(const Expr& expr);
  Value eval_index(const Expr& expr);
  void eval_args(const Expr& expr, Args& args);
  Value apply_chain(const Expr* chain, Value input);
  Value call_macro(const Macro& macro, const Args& args);

  const Ast& ast_;
  Marked output_;
  Marked* sink_ = &output_;
  Scope* scope_ = nullptr;
  uint64_t steps_ = 0;
  int depth_ = 0;
  int line_ = 0;
  const Value* block_input_ = nullptr;  // what the innermost filter chain over a block starts from
  std::vector<std::unique_ptr<Object>> objects_;
  std::unordered_set<std::string> names_;
};

}  // namespace sluice::text::jinja
