// The names that templates may use: filters, tests, global functions and methods. Tables are constant; any thread.
#pragma once
#include <string_view>

#include "text/jinja/ast.h"

namespace sluice::text::jinja {

// nullptr if there is none of that name.
FilterFn find_filter(std::string_view name);
TestFn find_test(std::string_view name);
GlobalFn find_global(std::string_view name);

struct FilterEntry {
  std::string_view name;
  FilterFn fn;
};
// Filters on text, and on sequences and numbers; find_filter searches both.
extern const FilterEntry kTextFilters[];
extern const size_t kTextFilterCount;
extern const FilterEntry kSequenceFilters[];
extern const size_t kSequenceFilterCount;

// Methods of strings, lists and dicts.
bool has_method(const Value& self, std::string_view name);
Value call_method(Machine& m, const Value& self, std::string_view name, const Args& args);

}  // namespace sluice::text::jinja
