// Filters on sequences, dicts and numbers.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/builtins.h"
#include "text/jinja/operations.h"
#include "text/jinja/render_text.h"
#include "text/jinja/text_ops.h"

namespace sluice::text::jinja {
namespace {

using M = Machine;
using V = Value;

bool flag(const Args& args, size_t i, std::string_view name) {
  const Value* v = args.get(i, name);
  return v != nullptr && truthy(*v);
}

Value fallback(M&, const V& v, const Args& args) {
  if (!v.is(Type::kUndefined) && !(flag(args, 1, "boolean") && !truthy(v))) return v;
  const Value* other = args.get(0, "default_value");
  return other != nullptr ? *other : Value::of(Marked());
}

Value join(M& m, const V& v, const Args& args) {
  const Value* by = args.get(0, "d");
  const Value* path = args.get(1, "attribute");
  const Marked separator = by != nullptr ? to_text(m, *by) : Marked();
  Marked out;
  bool first = true;
  for (const Value& element : iterate(m, v)) {
    if (!first) out.append(separator);
    first = false;
    out.append(to_text(m, path != nullptr && !path->is(Type::kNone) ? attribute_path(m, element, *path) : element));
    m.charge_text(separator.size());
    if (out.size() > kMaxText) break;
  }
  return m.text(std::move(out));
}

Value items(M& m, const V& v, const Args& args) {
  if (v.is(Type::kUndefined)) return m.list({});
  if (!v.is(Type::kDict)) m.fail("items needs a mapping, not '" + std::string(type_name(v)) + "'");
  return call_method(m, v, "items", args);
}

Value first(M& m, const V& v, const Args&) {
  const std::vector<Value> all = iterate(m, v);
  return all.empty() ? Value::undefined() : all.front();
}

Value last(M& m, const V& v, const Args&) {
  const std::vector<Value> all = iterate(m, v);
  return all.empty() ? Value::undefined() : all.back();
}

Value reverse(M& m, const V& v, const Args&) {
  std::vector<Value> all = iterate(m, v);
  std::reverse(all.begin(), all.end());
  if (!v.is(Type::kString)) return m.list(std::move(all));
  Marked out;
  for (const Value& c : all) out.append(*c.string);
  return m.text(std::move(out));
}

Value map(M& m, const V& v, const Args& args) {
  std::vector<Value> out;
  const Value* path = nullptr;
  const Value* otherwise = nullptr;
  for (const auto& [name, value] : args.named) {
    if (*name == "attribute") path = &value;
    if (*name == "default") otherwise = &value;
  }
  Args rest;
  if (args.positional.empty() && path == nullptr) m.fail("map needs a filter or attribute=");
  if (!args.positional.empty()) {
    if (!args.positional[0].is(Type::kString)) m.fail("map needs the name of a filter");
    rest.positional.assign(args.positional.begin() + 1, args.positional.end());
    rest.named = args.named;
  }
  for (const Value& element : iterate(m, v)) {
    if (!args.positional.empty()) {
      out.push_back(m.call_filter(args.positional[0].text(), element, rest));
      continue;
    }
    out.push_back(attribute_path(m, element, *path, otherwise));
  }
  return m.list(std::move(out));
}

// select and its kin: by_attribute takes the attribute's path first; then a test (default: truth) and its arguments.
Value select(M& m, const V& v, const Args& args, bool keep, bool by_attribute) {
  const size_t at = by_attribute ? 1 : 0;
  if (by_attribute && args.positional.empty()) m.fail("a select filter needs an attribute");
  TestFn test = nullptr;
  Args rest;
  if (args.positional.size() > at) {
    if (!args.positional[at].is(Type::kString)) m.fail("a select filter needs the name of a test");
    test = find_test(args.positional[at].text());
    if (test == nullptr) m.fail("no test is named '" + args.positional[at].text() + "'");
    rest.positional.assign(args.positional.begin() + static_cast<std::ptrdiff_t>(at) + 1, args.positional.end());
  }
  std::vector<Value> out;
  for (const Value& element : iterate(m, v)) {
    m.charge();
    const Value subject = by_attribute ? attribute_path(m, element, args.positional[0]) : element;
    if ((test != nullptr ? test(m, subject, rest) : truthy(subject)) == keep) out.push_back(element);
  }
  return m.list(std::move(out));
}

// What sorting and comparing look at: the attribute, and unless case_sensitive the lower-cased text.
Value sort_key(M& m, const V& v, const Value* path, bool case_sensitive) {
  Value key = path != nullptr && !path->is(Type::kNone) ? attribute_path(m, v, *path) : v;
  return key.is(Type::kString) && !case_sensitive ? m.text(change_case(*key.string, Case::kLower)) : key;
}

// std::sort must not be given an order that throws midway through its invariants: merge sort copes.
void sort_by_keys(M& m, std::vector<std::pair<Value, Value>>& keyed, bool descending) {
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return descending ? order(m, b.first, a.first) < 0 : order(m, a.first, b.first) < 0;
  });
}

Value sort(M& m, const V& v, const Args& args) {
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& element : iterate(m, v)) keyed.emplace_back(sort_key(m, element, args.get(2, "attribute"), flag(args, 1, "case_sensitive")), element);
  sort_by_keys(m, keyed, flag(args, 0, "reverse"));
  std::vector<Value> out;
  for (auto& entry : keyed) out.push_back(std::move(entry.second));
  return m.list(std::move(out));
}

Value dictsort(M& m, const V& v, const Args& args) {
  if (!v.is(Type::kDict)) m.fail("dictsort needs a mapping, not '" + std::string(type_name(v)) + "'");
  const Value* by = args.get(1, "by");
  const bool by_value = by != nullptr && by->is(Type::kString) && by->text() == "value";
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, value] : v.dict->entries) keyed.emplace_back(sort_key(m, by_value ? value : key, nullptr, flag(args, 0, "case_sensitive")), m.list({key, value}, true));
  sort_by_keys(m, keyed, flag(args, 2, "reverse"));
  std::vector<Value> out;
  for (auto& entry : keyed) out.push_back(std::move(entry.second));
  return m.list(std::move(out));
}

Value extreme(M& m, const V& v, const Args& args, int sign) {
  Value best, best_key;
  bool any = false;
  for (const Value& element : iterate(m, v)) {
    Value key = sort_key(m, element, args.get(1, "attribute"), flag(args, 0, "case_sensitive"));
    if (any && order(m, key, best_key) * sign <= 0) continue;
    any = true;
    best = element;
    best_key = std::move(key);
  }
  return best;
}

Value unique(M& m, const V& v, const Args& args) {
  Dict* seen = m.new_dict();
  std::vector<Value> out;
  for (const Value& element : iterate(m, v)) {
    std::string key = canonical_key(m, sort_key(m, element, args.get(1, "attribute"), flag(args, 0, "case_sensitive")));
    if (seen->find(key) != nullptr) continue;
    seen->put(std::move(key), Value::none(), Value::none());
    out.push_back(element);
  }
  return m.list(std::move(out));
}

Value sum(M& m, const V& v, const Args& args) {
  const Value* path = args.get(0, "attribute");
  const Value* start = args.get(1, "start");
  Value total = start != nullptr ? *start : Value::of(int64_t{0});
  for (const Value& element : iterate(m, v)) total = binary(m, Op::kAdd, total, path != nullptr && !path->is(Type::kNone) ? attribute_path(m, element, *path) : element);
  return total;
}

bool parse_real(const std::string& text, double& out) {
  const Marked trimmed = strip(Marked(text, false), Side::kBoth, nullptr);
  const char* begin = trimmed.text().data();
  const char* end = begin + trimmed.size();
  if (begin != end && *begin == '+') ++begin;
  const auto parsed = std::from_chars(begin, end, out);
  return begin != end && parsed.ec == std::errc() && parsed.ptr == end;
}

Value to_int(M& m, const V& v, const Args& args) {
  const Value* given = args.get(0, "default");
  const Value otherwise = given != nullptr ? *given : Value::of(int64_t{0});
  if (v.is_integral()) return Value::of(v.as_int());
  double real = 0;
  if (v.is(Type::kString)) {
    const Value* base = args.get(1, "base");
    const std::string text = strip(*v.string, Side::kBoth, nullptr).text();
    int64_t whole = 0;
    const int64_t radix = base != nullptr ? std::clamp<int64_t>(to_index(m, *base, "int's base"), 2, 36) : 10;
    size_t skip = !text.empty() && text[0] == '+' ? 1 : 0;
    const char prefix = radix == 16 ? 'x' : radix == 8 ? 'o' : 'b';
    if (radix != 10 && text.size() > skip + 1 && text[skip] == '0' && (text[skip + 1] | 0x20) == prefix) skip += 2;
    const auto parsed = std::from_chars(text.data() + skip, text.data() + text.size(), whole, static_cast<int>(radix));
    if (parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() && text.size() > skip) return Value::of(whole);
    if (!parse_real(text, real)) return otherwise;
  } else if (v.is(Type::kFloat)) {
    real = v.real;
  } else {
    return otherwise;
  }
  return real > -9.2e18 && real < 9.2e18 ? Value::of(static_cast<int64_t>(real)) : otherwise;
}

Value to_float(M&, const V& v, const Args& args) {
  const Value* given = args.get(0, "default");
  double real = 0;
  if (v.is_number()) return Value::of(v.as_real());
  if (v.is(Type::kString) && parse_real(v.text(), real)) return Value::of(real);
  return given != nullptr ? *given : Value::of(0.0);
}

Value round(M& m, const V& v, const Args& args) {
  if (!v.is_number()) m.fail("round needs a number");
  const Value* precision = args.get(0, "precision");
  const Value* method = args.get(1, "method");
  const std::string how = method != nullptr && method->is(Type::kString) ? method->text() : "common";
  const int64_t digits = precision != nullptr ? std::clamp<int64_t>(to_index(m, *precision, "round's precision"), -15, 15) : 0;
  if (v.is_integral() && how == "common" && digits >= 0) return Value::of(v.as_int());
  const double scale = std::pow(10.0, static_cast<double>(digits));
  const double scaled = v.as_real() * scale;
  return Value::of((how == "ceil" ? std::ceil(scaled) : how == "floor" ? std::floor(scaled) : std::nearbyint(scaled)) / scale);
}

Value absolute(M& m, const V& v, const Args&) {
  if (v.is(Type::kFloat)) return Value::of(std::fabs(v.real));
  return to_index(m, v, "abs's value") < 0 ? negate(m, v) : Value::of(v.as_int());
}

Value attr(M& m, const V& v, const Args& args) {
  const Value* name = args.get(0, "name");
  if (name == nullptr || !name->is(Type::kString)) m.fail("attr needs a name");
  return attribute(m, v, m.keep_name(name->text()));
}

}  // namespace

const FilterEntry kSequenceFilters[] = {
    {"default", fallback},
    {"d", fallback},
    {"length", [](M& m, const V& v, const Args&) { return Value::of(length(m, v)); }},
    {"count", [](M& m, const V& v, const Args&) { return Value::of(length(m, v)); }},
    {"join", join},
    {"items", items},
    {"list", [](M& m, const V& v, const Args&) { return m.list(iterate(m, v)); }},
    {"first", first},
    {"last", last},
    {"reverse", reverse},
    {"map", map},
    {"select", [](M& m, const V& v, const Args& a) { return select(m, v, a, true, false); }},
    {"reject", [](M& m, const V& v, const Args& a) { return select(m, v, a, false, false); }},
    {"selectattr", [](M& m, const V& v, const Args& a) { return select(m, v, a, true, true); }},
    {"rejectattr", [](M& m, const V& v, const Args& a) { return select(m, v, a, false, true); }},
    {"sort", sort},
    {"dictsort", dictsort},
    {"min", [](M& m, const V& v, const Args& a) { return extreme(m, v, a, -1); }},
    {"max", [](M& m, const V& v, const Args& a) { return extreme(m, v, a, 1); }},
    {"unique", unique},
    {"sum", sum},
    {"int", to_int},
    {"float", to_float},
    {"round", round},
    {"abs", absolute},
    {"attr", attr},
};
const size_t kSequenceFilterCount = std::size(kSequenceFilters);

}  // namespace sluice::text::jinja
