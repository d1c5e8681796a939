// Values as text: Python's str() and repr(), JSON, and % formatting. One thread (the Machine's).
#pragma once
#include <string>

#include "text/jinja/machine.h"

namespace sluice::text::jinja {

Marked to_text(Machine& m, const Value& v);  // str()
void append_repr(Machine& m, const Value& v, Marked& out, int depth = 0);
std::string float_repr(double d);
// "%s has %d" % values
Marked format_percent(Machine& m, const Marked& format, const Value& values);
// "{} has {n}".format(...)
Marked format_braces(Machine& m, const Marked& format, const Args& args);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool pretty = false;    // with indent
  std::string indent;     // of one level
  std::string item_separator = ", ", key_separator = ": ";
};
// As Python's json.dumps. Marks follow the strings; what json.dumps itself adds counts as the user's.
void append_json(Machine& m, const Value& v, const JsonStyle& style, Marked& out, int depth = 0);

}  // namespace sluice::text::jinja
