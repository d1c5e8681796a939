// Filters on text and JSON.
#include <algorithm>
#include <cstdlib>

#include <nlohmann/json.hpp>

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

Value tojson(M& m, const V& v, const Args& args) {
  JsonStyle style;
  style.ensure_ascii = flag(args, 0, "ensure_ascii");
  style.sort_keys = flag(args, 3, "sort_keys");
  const Value* indent = args.get(1, "indent");
  if (indent != nullptr && !indent->is(Type::kNone)) {
    style.pretty = true;
    style.item_separator = ",";
    if (indent->is(Type::kString)) style.indent = indent->text();
    else style.indent.assign(static_cast<size_t>(std::clamp<int64_t>(to_index(m, *indent, "tojson's indent"), 0, 64)), ' ');
    if (style.indent.size() > 64) m.fail("tojson's indent is longer than 64 bytes");
  }
  const Value* separators = args.get(2, "separators");
  if (separators != nullptr && !separators->is(Type::kNone)) {
    if (!separators->is(Type::kList) || separators->list->items.size() != 2) m.fail("tojson's separators are two texts");
    style.item_separator = to_text(m, separators->list->items[0]).text();
    style.key_separator = to_text(m, separators->list->items[1]).text();
  }
  Marked out;
  append_json(m, v, style, out);
  return m.text(std::move(out));
}

Value from_json(M& m, const V& v, const Args&) {
  const Marked source = to_text(m, v);
  m.charge(1 + source.size() / 8);
  const auto parsed = nlohmann::ordered_json::parse(source.text(), nullptr, false);
  if (parsed.is_discarded()) m.fail("from_json: not JSON");
  return m.from_json(parsed, source.any_user());
}

Value trim(M& m, const V& v, const Args& args) {
  const Value* chars = args.get(0, "chars");
  const bool given = chars != nullptr && chars->is(Type::kString);
  return m.text(strip(to_text(m, v), Side::kBoth, given ? &chars->text() : nullptr));
}

Value as_string(M& m, const V& v, const Args&) { return v.is(Type::kString) ? v : m.text(to_text(m, v)); }

Value replace(M& m, const V& v, const Args& args) {
  const Value* from = args.get(0, "old");
  const Value* to = args.get(1, "new");
  const Value* count = args.get(2, "count");
  if (from == nullptr || to == nullptr) m.fail("replace takes two texts");
  const int64_t limit = count == nullptr || count->is(Type::kNone) ? -1 : to_index(m, *count, "replace's count");
  return m.text(replace_all(m, to_text(m, v), to_text(m, *from).text(), to_text(m, *to), limit));
}

Value indent(M& m, const V& v, const Args& args) {
  const Value* width = args.get(0, "width");
  Marked pad(std::string(4, ' '), false);
  if (width != nullptr && width->is(Type::kString)) pad = *width->string;
  else if (width != nullptr) pad = Marked(std::string(static_cast<size_t>(std::clamp<int64_t>(to_index(m, *width, "indent's width"), 0, 1000)), ' '), false);
  const bool first = flag(args, 1, "first"), blank = flag(args, 2, "blank");
  Marked source = to_text(m, v);
  source.append("\n", false);  // so that a last empty line survives
  Marked out;
  size_t n = 0;
  for (const Marked& line : split_lines(source)) {
    if (n > 0) out.append("\n", false);
    if (n == 0 ? first : blank || !line.empty()) out.append(pad);
    out.append(line);
    m.charge_text(pad.size());
    if (out.size() > kMaxText) break;
    ++n;
  }
  return m.text(std::move(out));
}

// Words start after whitespace, dashes and opening brackets; the apostrophe of "it's" starts none.
Value title(M& m, const V& v, const Args&) {
  const Marked source = to_text(m, v);
  Marked out, word;
  const auto flush = [&] {
    out.append(change_case(word, Case::kCapital));
    word = Marked();
  };
  m.charge(source.size());
  for (const Marked& c : characters(source)) {
    const bool between = std::string_view("-({[<").find(c.text()) != std::string_view::npos || strip(c, Side::kLeft, nullptr).empty();
    if (between) flush();
    (between ? out : word).append(c);
  }
  flush();
  return m.text(std::move(out));
}

Value escape(M& m, const V& v, const Args&) {
  const Marked source = to_text(m, v);
  Marked out;
  for (size_t i = 0; i < source.size(); ++i) {
    const bool user = source.user_at(i);
    switch (source.text()[i]) {
      case '&': out.append("&amp;", user); break;
      case '<': out.append("&lt;", user); break;
      case '>': out.append("&gt;", user); break;
      case '\'': out.append("&#39;", user); break;
      case '"': out.append("&#34;", user); break;
      default: out.append_part(source, i, 1);
    }
  }
  return m.text(std::move(out));
}

Value format(M& m, const V& v, const Args& args) {
  if (!args.named.empty()) {
    Dict* values = m.new_dict();
    for (const auto& [name, value] : args.named) values->put("s" + *name, Value::of(Marked(*name, false)), value);
    return m.text(format_percent(m, to_text(m, v), Value::of(values)));
  }
  return m.text(format_percent(m, to_text(m, v), m.list(args.positional, true)));
}

}  // namespace

const FilterEntry kTextFilters[] = {
    {"tojson", tojson},
    {"from_json", from_json},
    {"trim", trim},
    {"string", as_string},
    {"safe", as_string},
    {"replace", replace},
    {"indent", indent},
    {"title", title},
    {"escape", escape},
    {"e", escape},
    {"format", format},
    {"upper", [](M& m, const V& v, const Args&) { return m.text(change_case(to_text(m, v), Case::kUpper)); }},
    {"lower", [](M& m, const V& v, const Args&) { return m.text(change_case(to_text(m, v), Case::kLower)); }},
    {"capitalize", [](M& m, const V& v, const Args&) { return m.text(change_case(to_text(m, v), Case::kCapital)); }},
};
const size_t kTextFilterCount = std::size(kTextFilters);

}  // namespace sluice::text::jinja
