// str(), repr() and JSON.
#include "text/jinja/render_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "text/jinja/operations.h"
#include "text/utf8.h"

namespace sluice::text::jinja {
namespace {

void check_size(Machine& m, const Marked& out) {
  if (out.size() > kMaxText) m.fail("a text is longer than " + std::to_string(kMaxText) + " bytes");
}

std::string scalar_text(const Value& v) {
  switch (v.type) {
    case Type::kNone: return "None";
    case Type::kBool: return v.boolean ? "True" : "False";
    case Type::kInt: return std::to_string(v.integer);
    case Type::kFloat: return float_repr(v.real);
    case Type::kUndefined: return "Undefined";
    case Type::kMacro: return "<macro>";
    case Type::kLoop: return "<loop>";
    default: return "<function>";
  }
}

// Characters that repr() escapes rather than shows.
bool is_printable(uint32_t c) {
  return !(c < 0x20 || (c >= 0x7F && c <= 0xA0) || c == 0xAD || c == 0x1680 || (c >= 0x2000 && c <= 0x200F) || (c >= 0x2028 && c <= 0x202F) ||
           (c >= 0x205F && c <= 0x206F) || c == 0x3000 || (c >= 0xE000 && c <= 0xF8FF) || c == 0xFEFF);
}

std::string hex_escape(uint32_t c) {
  char buffer[16];
  std::snprintf(buffer, sizeof buffer, c < 0x100 ? "\\x%02x" : c < 0x10000 ? "\\u%04x" : "\\U%08x", static_cast<unsigned>(c));
  return buffer;
}

void string_repr(const Marked& s, Marked& out) {
  const bool doubles = s.text().find('\'') != std::string::npos && s.text().find('"') == std::string::npos;
  const char quote = doubles ? '"' : '\'';
  out.append(std::string_view(&quote, 1), true);
  for (size_t i = 0; i < s.size();) {
    const Utf8Char c = utf8_at(s.text(), i);
    const bool user = s.user_at(i);
    if (c.code == '\\' || c.code == static_cast<uint32_t>(quote)) out.append(std::string("\\") + s.text()[i], user);
    else if (c.code == '\n') out.append("\\n", user);
    else if (c.code == '\r') out.append("\\r", user);
    else if (c.code == '\t') out.append("\\t", user);
    else if (!is_printable(c.code)) out.append(hex_escape(c.code), user);
    else out.append_part(s, i, c.length);
    i += c.length;
  }
  out.append(std::string_view(&quote, 1), true);
}

// The JSON escape of a character; empty if it stands for itself.
std::string json_escape(uint32_t c, bool ensure_ascii) {
  switch (c) {
    case '"': return "\\\"";
    case '\\': return "\\\\";
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    case '\b': return "\\b";
    case '\f': return "\\f";
    default: break;
  }
  if (c >= 0x20 && (!ensure_ascii || c < 0x7F)) return {};
  char buffer[16];
  if (c < 0x10000) std::snprintf(buffer, sizeof buffer, "\\u%04x", static_cast<unsigned>(c));
  else std::snprintf(buffer, sizeof buffer, "\\u%04x\\u%04x", static_cast<unsigned>(0xD800 + ((c - 0x10000) >> 10)), static_cast<unsigned>(0xDC00 + (c & 0x3FF)));
  return buffer;
}

void json_string(const Marked& s, bool ensure_ascii, Marked& out) {
  out.append("\"", true);
  size_t plain = 0;
  for (size_t i = 0; i < s.size();) {
    const Utf8Char c = utf8_at(s.text(), i);
    const std::string escape = json_escape(c.code, ensure_ascii);
    if (!escape.empty()) {
      out.append_part(s, plain, i - plain);
      out.append(escape, s.user_at(i));
      plain = i + c.length;
    }
    i += c.length;
  }
  out.append_part(s, plain, s.size() - plain);
  out.append("\"", true);
}

void json_key(Machine& m, const Value& key, const JsonStyle& style, Marked& out) {
  switch (key.type) {
    case Type::kString: json_string(*key.string, style.ensure_ascii, out); return;
    case Type::kBool: out.append(key.boolean ? "\"true\"" : "\"false\"", true); return;
    case Type::kNone: out.append("\"null\"", true); return;
    case Type::kInt: case Type::kFloat: out.append("\"" + scalar_text(key) + "\"", true); return;
    default: m.fail("a JSON key cannot be a '" + std::string(type_name(key)) + "'");
  }
}

void json_break(const JsonStyle& style, Marked& out, int depth) {
  if (!style.pretty) return;
  std::string line = "\n";
  for (int i = 0; i < depth; ++i) line += style.indent;
  out.append(line, true);
}

void json_list(Machine& m, const List& list, const JsonStyle& style, Marked& out, int depth) {
  out.append("[", true);
  for (size_t i = 0; i < list.items.size(); ++i) {
    if (i > 0) out.append(style.item_separator, true);
    json_break(style, out, depth + 1);
    append_json(m, list.items[i], style, out, depth + 1);
  }
  if (!list.items.empty()) json_break(style, out, depth);
  out.append("]", true);
}

void json_dict(Machine& m, const Dict& dict, const JsonStyle& style, Marked& out, int depth) {
  std::vector<const std::pair<Value, Value>*> entries;
  for (const auto& entry : dict.entries) entries.push_back(&entry);
  if (style.sort_keys) std::stable_sort(entries.begin(), entries.end(), [&](auto* a, auto* b) { return order(m, a->first, b->first) < 0; });
  out.append("{", true);
  bool first = true;
  for (const auto* entry : entries) {
    if (!first) out.append(style.item_separator, true);
    first = false;
    json_break(style, out, depth + 1);
    json_key(m, entry->first, style, out);
    out.append(style.key_separator, true);
    append_json(m, entry->second, style, out, depth + 1);
  }
  if (!entries.empty()) json_break(style, out, depth);
  out.append("}", true);
}

}  // namespace

std::string float_repr(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  char buffer[64];
  const auto end = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::scientific).ptr;
  const std::string_view all(buffer, static_cast<size_t>(end - buffer));
  const size_t e = all.find('e');
  int exponent = 0;
  std::from_chars(all.data() + e + (all[e + 1] == '+' ? 2 : 1), end, exponent);
  std::string digits;
  for (const char c : all.substr(0, e))
    if (c >= '0' && c <= '9') digits += c;
  std::string out = all[0] == '-' ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (digits.size() > 1) out += "." + digits.substr(1);
    const std::string power = std::to_string(std::abs(exponent));
    return out + "e" + (exponent < 0 ? "-" : "+") + (power.size() < 2 ? "0" : "") + power;
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  const auto whole = static_cast<size_t>(exponent) + 1;
  if (digits.size() <= whole) return out + digits + std::string(whole - digits.size(), '0') + ".0";
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

void append_repr(Machine& m, const Value& v, Marked& out, int depth) {
  m.check_depth(depth);
  m.charge();
  check_size(m, out);
  if (v.is(Type::kString)) {
    m.charge_text(v.text().size());
    string_repr(*v.string, out);
  } else if (v.is(Type::kList)) {
    out.append(v.list->tuple ? "(" : "[", true);
    for (size_t i = 0; i < v.list->items.size(); ++i) {
      if (i > 0) out.append(", ", true);
      append_repr(m, v.list->items[i], out, depth + 1);
    }
    out.append(!v.list->tuple ? "]" : v.list->items.size() == 1 ? ",)" : ")", true);
  } else if (v.is(Type::kDict) || v.is(Type::kNamespace)) {
    out.append(v.is(Type::kDict) ? "{" : "<Namespace {", true);
    bool first = true;
    for (const auto& [key, value] : v.dict->entries) {
      if (!first) out.append(", ", true);
      first = false;
      append_repr(m, key, out, depth + 1);
      out.append(": ", true);
      append_repr(m, value, out, depth + 1);
    }
    out.append(v.is(Type::kDict) ? "}" : "}>", true);
  } else {
    out.append(scalar_text(v), false);
  }
}

Marked to_text(Machine& m, const Value& v) {
  if (v.is(Type::kString)) return *v.string;
  Marked out;
  if (!v.is(Type::kUndefined)) append_repr(m, v, out);
  return out;
}

void append_json(Machine& m, const Value& v, const JsonStyle& style, Marked& out, int depth) {
  m.check_depth(depth);
  m.charge(1 + style.indent.size() * static_cast<size_t>(depth) / 64);
  check_size(m, out);
  switch (v.type) {
    case Type::kString:
      m.charge_text(v.text().size());
      json_string(*v.string, style.ensure_ascii, out);
      return;
    case Type::kList: json_list(m, *v.list, style, out, depth); return;
    case Type::kDict: json_dict(m, *v.dict, style, out, depth); return;
    case Type::kNone: out.append("null", true); return;
    case Type::kBool: out.append(v.boolean ? "true" : "false", true); return;
    case Type::kInt: out.append(std::to_string(v.integer), true); return;
    case Type::kFloat:
      if (std::isnan(v.real) || std::isinf(v.real)) out.append(std::isnan(v.real) ? "NaN" : v.real < 0 ? "-Infinity" : "Infinity", true);
      else out.append(float_repr(v.real), true);
      return;
    default: m.fail("a value of type '" + std::string(type_name(v)) + "' has no JSON form");
  }
}

}  // namespace sluice::text::jinja
