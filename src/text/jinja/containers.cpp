// Iteration, attributes, items, slices.
#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/operations.h"
#include "text/jinja/render_text.h"
#include "text/jinja/text_ops.h"

namespace sluice::text::jinja {
namespace {

Value loop_attribute(const Loop& loop, const std::string& name) {
  const auto number = [](size_t n) { return Value::of(static_cast<int64_t>(n)); };
  if (name == "index") return number(loop.at + 1);
  if (name == "index0") return number(loop.at);
  if (name == "first") return Value::of(loop.at == 0);
  if (name == "last") return Value::of(loop.at + 1 == loop.length);
  if (name == "length") return number(loop.length);
  if (name == "revindex") return number(loop.length - loop.at);
  if (name == "revindex0") return number(loop.length - loop.at - 1);
  if (name == "depth") return number(1);  // counts recursive loops alone, which there are none of
  if (name == "depth0") return number(0);
  if (name == "previtem" && loop.items != nullptr && loop.at > 0) return (*loop.items)[loop.at - 1];
  if (name == "nextitem" && loop.items != nullptr && loop.at + 1 < loop.length) return (*loop.items)[loop.at + 1];
  return Value::undefined(&name);
}

// Python's slice.indices(): clamped bounds for a sequence of n.
struct Bounds {
  int64_t start, stop, step;
};

Bounds slice_bounds(Machine& m, int64_t n, const Value& start, const Value& stop, const Value& step) {
  Bounds b{0, n, 1};
  if (!step.is(Type::kNone)) b.step = to_index(m, step, "slice step");
  if (b.step == 0) m.fail("slice step cannot be zero");
  const int64_t low = b.step > 0 ? 0 : -1, high = b.step > 0 ? n : n - 1;
  const auto clamp = [&](const Value& v, int64_t otherwise) {
    if (v.is(Type::kNone)) return otherwise;
    int64_t i = to_index(m, v, "slice bound");
    if (i < 0) i = i < -n ? -1 : i + n;
    return std::clamp(i, low, high);
  };
  b.start = clamp(start, b.step > 0 ? low : high);
  b.stop = clamp(stop, b.step > 0 ? high : low);
  return b;
}

std::vector<Value> pick(Machine& m, const std::vector<Value>& from, const Bounds& b) {
  std::vector<Value> out;
  const int64_t n = static_cast<int64_t>(from.size());
  for (int64_t i = b.start; (b.step > 0 ? i < b.stop : i > b.stop) && i >= 0 && i < n;) {
    m.charge();
    out.push_back(from[static_cast<size_t>(i)]);
    if (__builtin_add_overflow(i, b.step, &i)) break;
  }
  return out;
}

}  // namespace

const char* type_name(const Value& v) {
  switch (v.type) {
    case Type::kUndefined: return "Undefined";
    case Type::kNone: return "NoneType";
    case Type::kBool: return "bool";
    case Type::kInt: return "int";
    case Type::kFloat: return "float";
    case Type::kString: return "str";
    case Type::kList: return v.list->tuple ? "tuple" : "list";
    case Type::kDict: return "dict";
    case Type::kNamespace: return "Namespace";
    case Type::kLoop: return "LoopContext";
    default: return "function";
  }
}

int64_t to_index(Machine& m, const Value& v, const char* what) {
  if (!v.is_integral()) m.fail(std::string(what) + " is not an integer but '" + type_name(v) + "'");
  return v.as_int();
}

std::string canonical_key(Machine& m, const Value& key) {
  switch (key.type) {
    case Type::kString: m.charge_text(key.text().size()); return "s" + key.text();
    case Type::kBool: case Type::kInt: return "i" + std::to_string(key.as_int());
    case Type::kFloat:
      if (key.real >= -9e15 && key.real <= 9e15 && key.real == static_cast<double>(static_cast<int64_t>(key.real)))
        return "i" + std::to_string(static_cast<int64_t>(key.real));
      return "f" + float_repr(key.real);
    case Type::kNone: return "n";
    case Type::kList:
      if (key.list->tuple) {
        Marked repr;
        append_repr(m, key, repr);
        return "t" + repr.text();
      }
      [[fallthrough]];
    default: m.fail("unhashable type: '" + std::string(type_name(key)) + "'");
  }
}

std::vector<Value> iterate(Machine& m, const Value& v) {
  std::vector<Value> out;
  switch (v.type) {
    case Type::kList: m.charge(v.list->items.size()); return v.list->items;
    case Type::kDict:
      m.charge(v.dict->entries.size());
      for (const auto& entry : v.dict->entries) out.push_back(entry.first);
      return out;
    case Type::kString:
      m.charge(v.text().size());
      for (Marked& c : characters(*v.string)) out.push_back(Value::of(std::move(c)));
      return out;
    case Type::kUndefined: return out;
    default: m.fail("'" + std::string(type_name(v)) + "' object is not iterable");
  }
}

int64_t length(Machine& m, const Value& v) {
  switch (v.type) {
    case Type::kList: return static_cast<int64_t>(v.list->items.size());
    case Type::kDict: return static_cast<int64_t>(v.dict->entries.size());
    case Type::kString: m.charge_text(v.text().size()); return static_cast<int64_t>(count_chars(v.text()));
    case Type::kUndefined: return 0;
    default: m.fail("object of type '" + std::string(type_name(v)) + "' has no len()");
  }
}

Value attribute(Machine& m, const Value& v, const std::string& name) {
  if (v.is(Type::kUndefined)) m.fail("'" + (v.name != nullptr ? *v.name : std::string("value")) + "' is undefined");
  if (v.is(Type::kNamespace) || (v.is(Type::kDict) && !has_method(v, name))) {
    const Value* found = v.dict->find("s" + name);
    return found != nullptr ? *found : Value::undefined(&name);
  }
  if (has_method(v, name)) return m.bind(v, name);
  return v.is(Type::kLoop) ? loop_attribute(*v.loop, name) : Value::undefined(&name);
}

Value item(Machine& m, const Value& v, const Value& key) {
  if (v.is(Type::kUndefined)) m.fail("'" + (v.name != nullptr ? *v.name : std::string("value")) + "' is undefined");
  if (v.is(Type::kDict)) {
    if (const Value* found = v.dict->find(canonical_key(m, key))) return *found;
  } else if (key.is_integral() && (v.is(Type::kList) || v.is(Type::kString))) {
    const int64_t n = length(m, v);
    const int64_t i = key.as_int() < 0 ? key.as_int() + n : key.as_int();
    if (i < 0 || i >= n) return Value::undefined();
    if (v.is(Type::kList)) return v.list->items[static_cast<size_t>(i)];
    const size_t begin = byte_offset(v.text(), static_cast<size_t>(i));
    return m.text(v.string->part(begin, byte_offset(std::string_view(v.text()).substr(begin), 1)));
  }
  if (!key.is(Type::kString)) return Value::undefined();
  const std::string& name = m.keep_name(key.text());
  return v.is(Type::kDict) && !has_method(v, name) ? Value::undefined(&name) : attribute(m, v, name);
}

Value attribute_path(Machine& m, Value v, const Value& path, const Value* otherwise) {
  const auto step = [&](const Value& key) {
    v = item(m, v, key);
    if (otherwise != nullptr && v.is(Type::kUndefined)) v = *otherwise;
  };
  if (!path.is(Type::kString)) {
    step(path);
    return v;
  }
  for (const Marked& part : split(*path.string, &m.keep_name("."), -1)) {
    const bool number = !part.empty() && part.size() < 10 && part.text().find_first_not_of("0123456789") == std::string::npos;
    step(number ? Value::of(static_cast<int64_t>(std::stoll(part.text()))) : Value::of(part));
  }
  return v;
}

Value slice(Machine& m, const Value& v, const Value& start, const Value& stop, const Value& step) {
  if (v.is(Type::kList)) {
    const Bounds b = slice_bounds(m, static_cast<int64_t>(v.list->items.size()), start, stop, step);
    return m.list(pick(m, v.list->items, b), v.list->tuple);
  }
  if (!v.is(Type::kString)) {
    if (v.is(Type::kUndefined)) m.fail("'" + (v.name != nullptr ? *v.name : std::string("value")) + "' is undefined");
    return Value::undefined();  // as the sandbox of the reference environment does
  }
  const Bounds b = slice_bounds(m, length(m, v), start, stop, step);
  if (b.step == 1) {
    if (b.start >= b.stop) return m.text({});
    const size_t begin = byte_offset(v.text(), static_cast<size_t>(b.start));
    const size_t bytes = byte_offset(std::string_view(v.text()).substr(begin), static_cast<size_t>(b.stop - b.start));
    return m.text(v.string->part(begin, bytes));
  }
  Marked out;
  for (const Value& c : pick(m, iterate(m, v), b)) out.append(*c.string);
  return m.text(std::move(out));
}

}  // namespace sluice::text::jinja
