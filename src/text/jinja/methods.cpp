// Methods of strings, lists, dicts and the loop variable.
#include <algorithm>

#include "text/jinja/builtins.h"
#include "text/jinja/operations.h"
#include "text/jinja/render_text.h"
#include "text/jinja/text_ops.h"
#include "text/utf8.h"

namespace sluice::text::jinja {
namespace {

using MethodFn = Value (*)(Machine&, const Value& self, const Args&);
struct MethodEntry {
  std::string_view name;
  MethodFn fn;
};

const std::string& string_argument(Machine& m, const Args& args, size_t i, std::string_view name) {
  const Value* v = args.get(i, name);
  if (v == nullptr || !v->is(Type::kString)) m.fail("a string method lacks its string argument");
  return v->text();
}

int64_t int_argument(Machine& m, const Args& args, size_t i, std::string_view name, int64_t otherwise) {
  const Value* v = args.get(i, name);
  return v == nullptr ? otherwise : to_index(m, *v, "an argument");
}

Value texts(Machine& m, std::vector<Marked> parts) {
  std::vector<Value> items;
  items.reserve(parts.size());
  for (Marked& part : parts) items.push_back(m.text(std::move(part)));
  return m.list(std::move(items));
}

Value strip_method(Machine& m, const Value& self, const Args& args, Side side) {
  const Value* chars = args.get(0, "chars");
  const bool given = chars != nullptr && !chars->is(Type::kNone);
  return m.text(strip(*self.string, side, given ? &string_argument(m, args, 0, "chars") : nullptr));
}

Value split_method(Machine& m, const Value& self, const Args& args, bool from_right) {
  const Value* separator = args.get(0, "sep");
  const int64_t limit = int_argument(m, args, 1, "maxsplit", -1);
  m.charge(1 + self.text().size() / 16);
  if (separator == nullptr || separator->is(Type::kNone)) {
    if (from_right && limit >= 0) m.fail("rsplit with a limit needs a separator");
    return texts(m, split(*self.string, nullptr, limit));
  }
  const std::string& by = string_argument(m, args, 0, "sep");
  if (by.empty()) m.fail("empty separator");
  return texts(m, from_right ? rsplit(*self.string, by, limit) : split(*self.string, &by, limit));
}

bool matches_end(const std::string& s, const std::string& affix, bool front) {
  return affix.size() <= s.size() && s.compare(front ? 0 : s.size() - affix.size(), affix.size(), affix) == 0;
}

Value affix_method(Machine& m, const Value& self, const Args& args, bool front) {
  const Value* affix = args.get(0, front ? "prefix" : "suffix");
  if (affix != nullptr && affix->is(Type::kList) && affix->list->tuple) {
    for (const Value& one : affix->list->items)
      if (one.is(Type::kString) && matches_end(self.text(), one.text(), front)) return Value::of(true);
    return Value::of(false);
  }
  return Value::of(matches_end(self.text(), string_argument(m, args, 0, "prefix"), front));
}

Value remove_affix(Machine& m, const Value& self, const Args& args, bool front) {
  const std::string& affix = string_argument(m, args, 0, "affix");
  if (!matches_end(self.text(), affix, front)) return self;
  return m.text(self.string->part(front ? affix.size() : 0, self.text().size() - affix.size()));
}

Value find_method(Machine& m, const Value& self, const Args& args, bool last) {
  const std::string& what = string_argument(m, args, 0, "sub");
  m.charge_text(self.text().size());
  const size_t at = last ? self.text().rfind(what) : self.text().find(what);
  return Value::of(at == std::string::npos ? int64_t{-1} : static_cast<int64_t>(count_chars(std::string_view(self.text()).substr(0, at))));
}

Value partition(Machine& m, const Value& self, const Args& args, bool last) {
  const std::string& by = string_argument(m, args, 0, "sep");
  const size_t at = last ? self.text().rfind(by) : self.text().find(by);
  std::vector<Value> parts(3, Value::of(Marked()));
  if (at == std::string::npos) {
    parts[last ? 2 : 0] = self;
  } else {
    parts[0] = m.text(self.string->part(0, at));
    parts[1] = m.text(self.string->part(at, by.size()));
    parts[2] = m.text(self.string->part(at + by.size(), self.text().size() - at - by.size()));
  }
  return m.list(std::move(parts), true);
}

Value join_method(Machine& m, const Value& self, const Args& args) {
  if (args.positional.size() != 1) m.fail("join takes one argument");
  Marked out;
  bool first = true;
  for (const Value& part : iterate(m, args.positional[0])) {
    if (!part.is(Type::kString)) m.fail("join expects strings, not '" + std::string(type_name(part)) + "'");
    if (!first) out.append(*self.string);
    first = false;
    out.append(*part.string);
    if (out.size() > kMaxText) break;
  }
  return m.text(std::move(out));
}

bool all_chars(const std::string& s, bool (*holds)(char)) { return !s.empty() && std::all_of(s.begin(), s.end(), holds); }
bool digit(char c) { return c >= '0' && c <= '9'; }
bool alpha(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || static_cast<uint8_t>(c) >= 0x80; }

using M = Machine;
using V = Value;
constexpr MethodEntry kStringMethods[] = {
    {"strip", [](M& m, const V& s, const Args& a) { return strip_method(m, s, a, Side::kBoth); }},
    {"lstrip", [](M& m, const V& s, const Args& a) { return strip_method(m, s, a, Side::kLeft); }},
    {"rstrip", [](M& m, const V& s, const Args& a) { return strip_method(m, s, a, Side::kRight); }},
    {"split", [](M& m, const V& s, const Args& a) { return split_method(m, s, a, false); }},
    {"rsplit", [](M& m, const V& s, const Args& a) { return split_method(m, s, a, true); }},
    {"splitlines", [](M& m, const V& s, const Args&) { return texts(m, split_lines(*s.string)); }},
    {"startswith", [](M& m, const V& s, const Args& a) { return affix_method(m, s, a, true); }},
    {"endswith", [](M& m, const V& s, const Args& a) { return affix_method(m, s, a, false); }},
    {"removeprefix", [](M& m, const V& s, const Args& a) { return remove_affix(m, s, a, true); }},
    {"removesuffix", [](M& m, const V& s, const Args& a) { return remove_affix(m, s, a, false); }},
    {"replace",
     [](M& m, const V& s, const Args& a) {
       string_argument(m, a, 1, "new");
       return m.text(replace_all(m, *s.string, string_argument(m, a, 0, "old"), *a.get(1, "new")->string, int_argument(m, a, 2, "count", -1)));
     }},
    {"format", [](M& m, const V& s, const Args& a) { return m.text(format_braces(m, *s.string, a)); }},
    {"join", join_method},
    {"upper", [](M& m, const V& s, const Args&) { return m.text(change_case(*s.string, Case::kUpper)); }},
    {"lower", [](M& m, const V& s, const Args&) { return m.text(change_case(*s.string, Case::kLower)); }},
    {"capitalize", [](M& m, const V& s, const Args&) { return m.text(change_case(*s.string, Case::kCapital)); }},
    {"title", [](M& m, const V& s, const Args&) { return m.text(change_case(*s.string, Case::kTitle)); }},
    {"find", [](M& m, const V& s, const Args& a) { return find_method(m, s, a, false); }},
    {"rfind", [](M& m, const V& s, const Args& a) { return find_method(m, s, a, true); }},
    {"partition", [](M& m, const V& s, const Args& a) { return partition(m, s, a, false); }},
    {"rpartition", [](M& m, const V& s, const Args& a) { return partition(m, s, a, true); }},
    {"count",
     [](M& m, const V& s, const Args& a) {
       const std::string& what = string_argument(m, a, 0, "sub");
       if (what.empty()) return Value::of(static_cast<int64_t>(count_chars(s.text())) + 1);
       return Value::of(static_cast<int64_t>(split(*s.string, &what, -1).size()) - 1);
     }},
    {"isdigit", [](M&, const V& s, const Args&) { return Value::of(all_chars(s.text(), digit)); }},
    {"isalpha", [](M&, const V& s, const Args&) { return Value::of(all_chars(s.text(), alpha)); }},
    {"isalnum", [](M&, const V& s, const Args&) { return Value::of(all_chars(s.text(), [](char c) { return digit(c) || alpha(c); })); }},
    {"isspace", [](M&, const V& s, const Args&) { return Value::of(!s.text().empty() && strip(*s.string, Side::kLeft, nullptr).empty()); }},
};

Value list_pop(M& m, const V& self, const Args& args) {
  auto& items = self.list->items;
  const auto n = static_cast<int64_t>(items.size());
  int64_t at = int_argument(m, args, 0, "index", -1);
  if (at < 0) at += n;
  if (at < 0 || at >= n) m.fail("pop index out of range");
  m.charge(1 + static_cast<uint64_t>(n - at) / 16);
  Value taken = items[static_cast<size_t>(at)];
  items.erase(items.begin() + at);
  return taken;
}

Value list_find(M& m, const V& self, const Args& args, bool count) {
  if (args.positional.empty()) m.fail("a list method lacks its argument");
  int64_t found = 0;
  for (size_t i = 0; i < self.list->items.size(); ++i) {
    if (!equal(m, self.list->items[i], args.positional[0])) continue;
    if (!count) return Value::of(static_cast<int64_t>(i));
    ++found;
  }
  if (!count) m.fail("the value is not in the list");
  return Value::of(found);
}

constexpr MethodEntry kListMethods[] = {
    {"append",
     [](M& m, const V& l, const Args& a) {
       if (a.positional.size() != 1 || l.list->tuple) m.fail("append takes one argument, on a list");
       m.charge(4);
       l.list->items.push_back(a.positional[0]);
       return Value::none();
     }},
    {"extend",
     [](M& m, const V& l, const Args& a) {
       if (a.positional.size() != 1 || l.list->tuple) m.fail("extend takes one argument, on a list");
       const std::vector<Value> more = iterate(m, a.positional[0]);
       l.list->items.insert(l.list->items.end(), more.begin(), more.end());
       return Value::none();
     }},
    {"pop", list_pop},
    {"index", [](M& m, const V& l, const Args& a) { return list_find(m, l, a, false); }},
    {"count", [](M& m, const V& l, const Args& a) { return list_find(m, l, a, true); }},
};

Value dict_part(M& m, const V& self, bool keys, bool values) {
  std::vector<Value> out;
  m.charge(self.dict->entries.size());
  for (const auto& [key, value] : self.dict->entries) out.push_back(keys && values ? m.list({key, value}, true) : keys ? key : value);
  return m.list(std::move(out));
}

Value dict_get(M& m, const V& self, const Args& args, bool remove) {
  if (args.positional.empty()) m.fail("a dict method lacks its key");
  const std::string key = canonical_key(m, args.positional[0]);
  const Value* fallback = args.get(1, "default");
  if (const Value* found = self.dict->find(key)) {
    Value taken = *found;
    if (remove) m.charge(self.dict->entries.size());
    if (remove) self.dict->erase(key);
    return taken;
  }
  if (remove && fallback == nullptr) m.fail("pop: the key is not in the dict");
  return fallback != nullptr ? *fallback : Value::none();
}

constexpr MethodEntry kDictMethods[] = {
    {"items", [](M& m, const V& d, const Args&) { return dict_part(m, d, true, true); }},
    {"keys", [](M& m, const V& d, const Args&) { return dict_part(m, d, true, false); }},
    {"values", [](M& m, const V& d, const Args&) { return dict_part(m, d, false, true); }},
    {"get", [](M& m, const V& d, const Args& a) { return dict_get(m, d, a, false); }},
    {"pop", [](M& m, const V& d, const Args& a) { return dict_get(m, d, a, true); }},
    {"copy",
     [](M& m, const V& d, const Args&) {
       Dict* made = m.new_dict();
       m.charge(d.dict->entries.size());
       made->entries = d.dict->entries;
       made->index = d.dict->index;
       return Value::of(made);
     }},
    {"update",
     [](M& m, const V& d, const Args& a) {
       if (a.positional.size() > 1 || (a.positional.size() == 1 && !a.positional[0].is(Type::kDict))) m.fail("update takes a dict");
       if (a.positional.size() == 1 && a.positional[0].dict != d.dict)
         for (const auto& [key, value] : a.positional[0].dict->entries) d.dict->put(canonical_key(m, key), key, value);
       for (const auto& [name, value] : a.named) d.dict->put("s" + *name, Value::of(Marked(*name, false)), value);
       return Value::none();
     }},
};

constexpr MethodEntry kLoopMethods[] = {
    {"cycle",
     [](M& m, const V& l, const Args& a) {
       if (a.positional.empty()) m.fail("cycle needs an argument");
       return a.positional[l.loop->at % a.positional.size()];
     }},
};

MethodFn find_method_of(const Value& self, std::string_view name) {
  const auto search = [&](const auto& table) -> MethodFn {
    for (const MethodEntry& entry : table)
      if (entry.name == name) return entry.fn;
    return nullptr;
  };
  switch (self.type) {
    case Type::kString: return search(kStringMethods);
    case Type::kList: return search(kListMethods);
    case Type::kDict: return search(kDictMethods);
    case Type::kLoop: return search(kLoopMethods);
    default: return nullptr;
  }
}

}  // namespace

bool has_method(const Value& self, std::string_view name) { return find_method_of(self, name) != nullptr; }

Value call_method(Machine& m, const Value& self, std::string_view name, const Args& args) {
  const MethodFn fn = find_method_of(self, name);
  if (fn == nullptr) m.fail("'" + std::string(type_name(self)) + "' object has no method '" + std::string(name) + "'");
  return fn(m, self, args);
}

}  // namespace sluice::text::jinja
