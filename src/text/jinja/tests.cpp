// The tests behind `is`.
#include "text/jinja/builtins.h"
#include "text/jinja/operations.h"
#include "text/jinja/text_ops.h"

namespace sluice::text::jinja {
namespace {

const Value& argument(Machine& m, const Args& args) {
  if (args.positional.empty()) m.fail("a test lacks its argument");
  return args.positional[0];
}

int64_t whole(Machine& m, const Value& v) { return to_index(m, v, "the value of a number test"); }

bool is_callable(const Value& v) { return v.is(Type::kMacro) || v.is(Type::kMethod) || v.is(Type::kGlobal); }
bool is_sequence(const Value& v) { return v.is(Type::kList) || v.is(Type::kString) || v.is(Type::kDict) || v.is(Type::kUndefined); }

bool cased(const Value& v, Case to) {
  return v.is(Type::kString) && !v.text().empty() && change_case(*v.string, to).text() == v.text() &&
         change_case(*v.string, to == Case::kUpper ? Case::kLower : Case::kUpper).text() != v.text();
}

bool same(Machine& m, const Value& a, const Value& b) {
  if (a.type != b.type) return false;
  if (a.is(Type::kList)) return a.list == b.list;
  if (a.is(Type::kDict)) return a.dict == b.dict;
  return equal(m, a, b);
}

struct TestEntry {
  std::string_view name;
  TestFn fn;
};

using M = Machine;
using V = Value;

constexpr TestEntry kTests[] = {
    {"defined", [](M&, const V& v, const Args&) { return !v.is(Type::kUndefined); }},
    {"undefined", [](M&, const V& v, const Args&) { return v.is(Type::kUndefined); }},
    {"none", [](M&, const V& v, const Args&) { return v.is(Type::kNone); }},
    {"string", [](M&, const V& v, const Args&) { return v.is(Type::kString); }},
    {"mapping", [](M&, const V& v, const Args&) { return v.is(Type::kDict); }},
    {"iterable", [](M&, const V& v, const Args&) { return is_sequence(v) || v.is(Type::kLoop); }},
    {"sequence", [](M&, const V& v, const Args&) { return is_sequence(v); }},
    {"number", [](M&, const V& v, const Args&) { return v.is_number(); }},
    {"integer", [](M&, const V& v, const Args&) { return v.is(Type::kInt); }},
    {"float", [](M&, const V& v, const Args&) { return v.is(Type::kFloat); }},
    {"boolean", [](M&, const V& v, const Args&) { return v.is(Type::kBool); }},
    {"true", [](M&, const V& v, const Args&) { return v.is(Type::kBool) && v.boolean; }},
    {"false", [](M&, const V& v, const Args&) { return v.is(Type::kBool) && !v.boolean; }},
    {"callable", [](M&, const V& v, const Args&) { return is_callable(v); }},
    {"odd", [](M& m, const V& v, const Args&) { return whole(m, v) % 2 != 0; }},
    {"even", [](M& m, const V& v, const Args&) { return whole(m, v) % 2 == 0; }},
    {"divisibleby",
     [](M& m, const V& v, const Args& args) {
       const int64_t by = whole(m, argument(m, args));
       if (by == 0) m.fail("division by zero");
       return by == -1 || whole(m, v) % by == 0;
     }},
    {"lower", [](M&, const V& v, const Args&) { return cased(v, Case::kLower); }},
    {"upper", [](M&, const V& v, const Args&) { return cased(v, Case::kUpper); }},
    {"in", [](M& m, const V& v, const Args& args) { return contains(m, argument(m, args), v); }},
    {"sameas", [](M& m, const V& v, const Args& args) { return same(m, v, argument(m, args)); }},
    {"eq", [](M& m, const V& v, const Args& args) { return equal(m, v, argument(m, args)); }},
    {"equalto", [](M& m, const V& v, const Args& args) { return equal(m, v, argument(m, args)); }},
    {"==", [](M& m, const V& v, const Args& args) { return equal(m, v, argument(m, args)); }},
    {"ne", [](M& m, const V& v, const Args& args) { return !equal(m, v, argument(m, args)); }},
    {"!=", [](M& m, const V& v, const Args& args) { return !equal(m, v, argument(m, args)); }},
    {"lt", [](M& m, const V& v, const Args& args) { return order(m, v, argument(m, args)) < 0; }},
    {"lessthan", [](M& m, const V& v, const Args& args) { return order(m, v, argument(m, args)) < 0; }},
    {"<", [](M& m, const V& v, const Args& args) { return order(m, v, argument(m, args)) < 0; }},
    {"le", [](M& m, const V& v, const Args& args) { return order(m, v, argument(m, args)) <= 0; }},
    {"<=", [](M& m, const V& v, const Args& args) { return order(m, v, argument(m, args)) <= 0; }},
    {"gt", [](M& m, const V& v, const Args& args) { return order(m, v, argument(m, args)) > 0; }},
    {"greaterthan", [](M& m, const V& v, const Args& args) { return order(m, v, argument(m, args)) > 0; }},
    {">", [](M& m, const V& v, const Args& args) { return order(m, v, argument(m, args)) > 0; }},
    {"ge", [](M& m, const V& v, const Args& args) { return order(m, v, argument(m, args)) >= 0; }},
    {">=", [](M& m, const V& v, const Args& args) { return order(m, v, argument(m, args)) >= 0; }},
};

}  // namespace

TestFn find_test(std::string_view name) {
  for (const TestEntry& entry : kTests)
    if (entry.name == name) return entry.fn;
  return nullptr;
}

}  // namespace sluice::text::jinja
