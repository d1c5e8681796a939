// Python's operations on values. All charge the Machine for their work and fail through it. One thread (the Machine's).
#pragma once
#include <string>

#include "text/jinja/machine.h"

namespace sluice::text::jinja {

bool truthy(const Value& v);
bool equal(Machine& m, const Value& a, const Value& b, int depth = 0);
// Below, at or above zero; fails for types that have no order.
int order(Machine& m, const Value& a, const Value& b, int depth = 0);
bool contains(Machine& m, const Value& container, const Value& item);
Value binary(Machine& m, Op op, const Value& a, const Value& b);
Value negate(Machine& m, const Value& v);

// The items a loop would see; dict: its keys; string: its characters.
std::vector<Value> iterate(Machine& m, const Value& v);
// len(); fails where Python does.
int64_t length(Machine& m, const Value& v);
Value attribute(Machine& m, const Value& v, const std::string& name);
Value item(Machine& m, const Value& v, const Value& key);
// Dotted path as in map(attribute="a.b"), whose parts may be numbers; `otherwise` (may be nullptr) stands for any part not there.
Value attribute_path(Machine& m, Value v, const Value& path, const Value* otherwise = nullptr);
Value slice(Machine& m, const Value& v, const Value& start, const Value& stop, const Value& step);
// The form under which a Dict finds a key; fails for a list or dict.
std::string canonical_key(Machine& m, const Value& key);
// "str", "int", "NoneType"... for messages.
const char* type_name(const Value& v);
// The value as an integer; fails naming `what`.
int64_t to_index(Machine& m, const Value& v, const char* what);

}  // namespace sluice::text::jinja
