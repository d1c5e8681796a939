// Statements of a render: output, scopes, loops, macros.
#include <nlohmann/json.hpp>

#include "text/jinja/machine.h"
#include "text/jinja/machine_scope.h"
#include "text/jinja/operations.h"
#include "text/jinja/render_text.h"

namespace sluice::text::jinja {

Value* Scope::find(int name_id) {
  for (auto& [id, value] : variables)
    if (id == name_id) return &value;
  return nullptr;
}

void Scope::set(int name_id, Value value) {
  if (Value* known = find(name_id)) *known = std::move(value);
  else variables.emplace_back(name_id, std::move(value));
}

void Machine::fail(std::string message) { throw Failure{std::move(message), line_, false}; }

Value Machine::text(Marked s) {
  if (s.size() > kMaxText) fail("a text is longer than " + std::to_string(kMaxText) + " bytes");
  charge_text(s.size());
  return Value::of(std::move(s));
}

List* Machine::new_list() {
  charge(2);
  auto made = std::make_unique<List>();
  List* list = made.get();
  objects_.push_back(std::move(made));
  return list;
}

Dict* Machine::new_dict() {
  charge(4);
  auto made = std::make_unique<Dict>();
  Dict* dict = made.get();
  objects_.push_back(std::move(made));
  return dict;
}

Value Machine::list(std::vector<Value> items, bool tuple) {
  List* made = new_list();
  charge(items.size());
  made->items = std::move(items);
  made->tuple = tuple;
  return Value::of(made);
}

Value Machine::bind(const Value& self, const std::string& name) {
  charge(4);
  auto made = std::make_unique<Method>();
  made->self = self;
  made->name = &keep_name(name);
  Value value = Value::of(Type::kMethod);
  value.method = made.get();
  objects_.push_back(std::move(made));
  return value;
}

const std::string& Machine::keep_name(std::string_view name) {
  charge_text(name.size());
  return *names_.emplace(name).first;
}

Value Machine::from_json(const nlohmann::ordered_json& json, bool user, int depth) {
  check_depth(depth);
  charge();
  switch (json.type()) {
    case nlohmann::ordered_json::value_t::boolean: return Value::of(json.get<bool>());
    case nlohmann::ordered_json::value_t::number_integer: return Value::of(json.get<int64_t>());
    case nlohmann::ordered_json::value_t::number_unsigned: {
      const auto number = json.get<uint64_t>();
      return number <= INT64_MAX ? Value::of(static_cast<int64_t>(number)) : Value::of(static_cast<double>(number));
    }
    case nlohmann::ordered_json::value_t::number_float: return Value::of(json.get<double>());
    case nlohmann::ordered_json::value_t::string: return text(Marked(json.get_ref<const std::string&>(), user));
    case nlohmann::ordered_json::value_t::array: {
      List* made = new_list();
      made->items.reserve(json.size());
      for (const auto& element : json) made->items.push_back(from_json(element, user, depth + 1));
      return Value::of(made);
    }
    case nlohmann::ordered_json::value_t::object: {
      Dict* made = new_dict();
      for (const auto& [key, value] : json.items()) made->put("s" + key, text(Marked(key, user)), from_json(value, user, depth + 1));
      return Value::of(made);
    }
    default: return Value::none();
  }
}

Marked Machine::run(const nlohmann::ordered_json& context) {
  NewScope root(*this, nullptr);
  for (const auto& [key, value] : context.items()) {
    const int name_id = ast_.find_name(key);
    if (name_id < 0) continue;  // the template never asks for it
    // Names of special tokens (bos_token...) belong to the model; all else may hold what a request said.
    const bool user = key.size() < 6 || key.compare(key.size() - 6, 6, "_token") != 0;
    scope_->set(name_id, from_json(value, user));
  }
  run_block(ast_.body);
  return std::move(output_);
}

void Machine::emit(const Marked& text) {
  if (sink_->size() + text.size() > kMaxText) fail("the output is longer than " + std::to_string(kMaxText) + " bytes");
  charge_text(text.size());
  sink_->append(text);
}

Flow Machine::run_block(const Block& block) {
  const Deeper deeper(*this);
  for (const Stmt* stmt : block)
    if (const Flow flow = run_stmt(*stmt); flow != Flow::kNext) return flow;
  return Flow::kNext;
}

Flow Machine::run_stmt(const Stmt& stmt) {
  charge();
  line_ = stmt.line;
  switch (stmt.kind) {
    case StmtKind::kText: emit(stmt.text); return Flow::kNext;
    case StmtKind::kOutput: emit(to_text(*this, eval(*stmt.expr))); return Flow::kNext;
    case StmtKind::kIf: return run_if(stmt);
    case StmtKind::kFor: return run_for(stmt);
    case StmtKind::kSet: assign(*stmt.target, eval(*stmt.expr)); return Flow::kNext;
    case StmtKind::kSetBlock: {
      Value value = text(capture(stmt.body));
      assign(*stmt.target, stmt.expr != nullptr ? apply_chain(stmt.expr, std::move(value)) : value);
      return Flow::kNext;
    }
    case StmtKind::kMacro: run_macro(stmt); return Flow::kNext;
    case StmtKind::kFilter: emit(to_text(*this, apply_chain(stmt.expr, text(capture(stmt.body))))); return Flow::kNext;
    case StmtKind::kScope: {
      const NewScope scope(*this, scope_);
      return run_block(stmt.body);
    }
    case StmtKind::kBreak: return Flow::kBreak;
    case StmtKind::kContinue: return Flow::kContinue;
  }
  return Flow::kNext;
}

Flow Machine::run_if(const Stmt& stmt) {
  for (const Branch& branch : stmt.branches)
    if (branch.condition == nullptr || truthy(eval(*branch.condition))) return run_block(branch.body);
  return Flow::kNext;
}

// What the loop will run over, its `if` applied: loop.length and loop.last count only those.
std::vector<Value> Machine::loop_items(const Stmt& stmt) {
  std::vector<Value> items = iterate(*this, eval(*stmt.expr));
  if (stmt.condition == nullptr) return items;
  std::vector<Value> kept;
  const NewScope scope(*this, scope_);
  for (Value& candidate : items) {
    charge();
    assign(*stmt.target, candidate);
    if (truthy(eval(*stmt.condition))) kept.push_back(std::move(candidate));
  }
  return kept;
}

Flow Machine::run_for(const Stmt& stmt) {
  const std::vector<Value> items = loop_items(stmt);
  if (items.empty()) return run_block(stmt.otherwise);
  auto owned = std::make_unique<Loop>();
  Loop& loop = *owned;
  objects_.push_back(std::move(owned));
  charge(4);
  loop.items = &items;
  loop.length = items.size();
  Value loop_value = Value::of(Type::kLoop);
  loop_value.loop = &loop;
  const int loop_name = ast_.find_name("loop");
  const NewScope scope(*this, scope_);
  for (loop.at = 0; loop.at < items.size(); ++loop.at) {
    charge();
    scope_->clear();
    if (loop_name >= 0) scope_->set(loop_name, loop_value);
    assign(*stmt.target, items[loop.at]);
    if (run_block(stmt.body) == Flow::kBreak) break;
  }
  loop.items = nullptr;
  return Flow::kNext;
}

void Machine::run_macro(const Stmt& stmt) {
  auto owned = std::make_unique<Macro>();
  charge(4);
  owned->definition = &stmt;
  owned->scope = scope_;
  Value value = Value::of(Type::kMacro);
  value.macro = owned.get();
  objects_.push_back(std::move(owned));
  for (Scope* scope = scope_; scope != nullptr && !scope->captured; scope = scope->parent) scope->captured = true;
  scope_->set(stmt.name_id, value);
}

Marked Machine::capture(const Block& block) {
  const NewScope scope(*this, scope_);
  Marked captured;
  Marked* const outer = std::exchange(sink_, &captured);
  run_block(block);
  sink_ = outer;
  return captured;
}

void Machine::assign(const Expr& target, const Value& value) {
  if (target.kind == ExprKind::kName) {
    charge(1 + scope_->variables.size() / 16);
    scope_->set(target.name_id, value);
  } else if (target.kind == ExprKind::kAttr) {
    const Value space = eval(*target.items[0]);
    if (!space.is(Type::kNamespace)) fail("cannot assign an attribute of a value that is not a namespace");
    charge();
    space.dict->put("s" + target.name, Value::of(Marked(target.name, false)), value);
  } else {
    const std::vector<Value> parts = iterate(*this, value);
    if (parts.size() != target.items.size())
      fail("cannot unpack " + std::to_string(parts.size()) + " values into " + std::to_string(target.items.size()) + " names");
    for (size_t i = 0; i < parts.size(); ++i) assign(*target.items[i], parts[i]);
  }
}

Value Machine::call_macro(const Macro& macro, const Args& args) {
  const Stmt& definition = *macro.definition;
  const size_t count = definition.parameters.size();
  if (args.positional.size() > count) fail("macro '" + definition.name + "' takes not more than " + std::to_string(count) + " argument(s)");
  const NewScope scope(*this, macro.scope);
  for (const auto& [name, value] : args.named) {
    bool known = false;
    for (size_t i = args.positional.size(); i < count; ++i) known = known || definition.parameters[i].name == *name;
    if (!known) fail("macro '" + definition.name + "' takes no keyword argument '" + *name + "' here");
  }
  for (size_t i = 0; i < count; ++i) {
    const Parameter& parameter = definition.parameters[i];
    const Value* given = args.get(i, parameter.name);
    // Defaults may use the parameters before them.
    scope_->set(parameter.name_id, given != nullptr ? *given : parameter.fallback != nullptr ? eval(*parameter.fallback) : Value::undefined(&parameter.name));
  }
  return text(capture(definition.body));
}

}  // namespace sluice::text::jinja
