// Global functions, and the search over both filter tables.
#include <ctime>

#include "text/jinja/builtins.h"
#include "text/jinja/operations.h"
#include "text/jinja/render_text.h"

namespace sluice::text::jinja {
namespace {

Value raise_exception(Machine& m, const Args& args) {
  const Value* message = args.get(0, "message");
  throw Failure{message != nullptr ? to_text(m, *message).text() : std::string("the template raised an exception"), 0, true};
}

// Local time, as the reference environment does: the date line of a prompt follows the server's clock.
Value strftime_now(Machine& m, const Args& args) {
  const Value* format = args.get(0, "format");
  if (format == nullptr || !format->is(Type::kString) || format->text().size() > 256) m.fail("strftime_now takes a format of at most 256 bytes");
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  char buffer[4096];
  const size_t n = std::strftime(buffer, sizeof buffer, format->text().c_str(), &local);
  return m.text(Marked(std::string_view(buffer, n), format->string->any_user()));
}

Value range(Machine& m, const Args& args) {
  if (args.positional.empty() || args.positional.size() > 3 || !args.named.empty()) m.fail("range takes 1 to 3 arguments");
  int64_t parts[3];
  for (size_t i = 0; i < args.positional.size(); ++i) parts[i] = to_index(m, args.positional[i], "an argument of range");
  const bool single = args.positional.size() == 1;
  const int64_t start = single ? 0 : parts[0], stop = single ? parts[0] : parts[1], step = args.positional.size() == 3 ? parts[2] : 1;
  if (step == 0) m.fail("range's step cannot be zero");
  std::vector<Value> numbers;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (static_cast<int64_t>(numbers.size()) >= kMaxRange) m.fail("range is longer than " + std::to_string(kMaxRange));
    numbers.push_back(Value::of(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return m.list(std::move(numbers));
}

Value make_dict(Machine& m, const Args& args) {
  Dict* made = m.new_dict();
  if (args.positional.size() > 1) m.fail("dict takes at most one positional argument");
  if (!args.positional.empty()) {
    const Value& from = args.positional[0];
    if (from.is(Type::kDict)) {
      m.charge(from.dict->entries.size());
      made->entries = from.dict->entries;
      made->index = from.dict->index;
    } else {
      for (const Value& pair : iterate(m, from)) {
        const std::vector<Value> parts = iterate(m, pair);
        if (parts.size() != 2) m.fail("dict takes pairs of key and value");
        made->put(canonical_key(m, parts[0]), parts[0], parts[1]);
      }
    }
  }
  for (const auto& [name, value] : args.named) made->put("s" + *name, Value::of(Marked(*name, false)), value);
  return Value::of(made);
}

Value make_namespace(Machine& m, const Args& args) { return Value::of(make_dict(m, args).dict, Type::kNamespace); }

}  // namespace

GlobalFn find_global(std::string_view name) {
  if (name == "raise_exception") return raise_exception;
  if (name == "strftime_now") return strftime_now;
  if (name == "range") return range;
  if (name == "dict") return make_dict;
  if (name == "namespace") return make_namespace;
  return nullptr;
}

FilterFn find_filter(std::string_view name) {
  for (size_t i = 0; i < kTextFilterCount; ++i)
    if (kTextFilters[i].name == name) return kTextFilters[i].fn;
  for (size_t i = 0; i < kSequenceFilterCount; ++i)
    if (kSequenceFilters[i].name == name) return kSequenceFilters[i].fn;
  return nullptr;
}

}  // namespace sluice::text::jinja
