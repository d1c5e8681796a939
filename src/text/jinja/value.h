// Value: what a template computes with, in Python's terms. Scalars are inline, strings are shared and never change,
// containers are owned by the Machine of one render (so cycles neither leak nor recurse on destruction).
// One thread at a time, except literal strings of a parsed program, which any thread may read.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/jinja/marked.h"

namespace sluice::text::jinja {

class Machine;
struct Args;
struct Value;
struct Stmt;
class Scope;

enum class Type : uint8_t { kUndefined, kNone, kBool, kInt, kFloat, kString, kList, kDict, kNamespace, kLoop, kMacro, kMethod, kGlobal };

// Base of what a Machine owns.
struct Object {
  virtual ~Object() = default;
};

struct List;
struct Dict;
struct Loop;
struct Macro;
struct Method;
using GlobalFn = Value (*)(Machine&, const Args&);

struct Value {
  Type type = Type::kUndefined;
  union {
    const std::string* name = nullptr;  // kUndefined: what was looked up, for messages; may be nullptr
    bool boolean;
    int64_t integer;
    double real;
    List* list;
    Dict* dict;  // kDict and kNamespace
    Loop* loop;
    Macro* macro;
    Method* method;
    GlobalFn global;
  };
  std::shared_ptr<const Marked> string;  // kString alone

  static Value undefined(const std::string* name = nullptr) {
    Value v;
    v.name = name;
    return v;
  }
  static Value none() { return of(Type::kNone); }
  static Value of(bool b) {
    Value v = of(Type::kBool);
    v.boolean = b;
    return v;
  }
  static Value of(int64_t i) {
    Value v = of(Type::kInt);
    v.integer = i;
    return v;
  }
  static Value of(double d) {
    Value v = of(Type::kFloat);
    v.real = d;
    return v;
  }
  static Value of(List* list) {
    Value v = of(Type::kList);
    v.list = list;
    return v;
  }
  static Value of(Dict* dict, Type type = Type::kDict) {
    Value v = of(type);
    v.dict = dict;
    return v;
  }
  static Value of(Marked s) {
    Value v = of(Type::kString);
    v.string = std::make_shared<const Marked>(std::move(s));
    return v;
  }
  static Value of(Type type) {
    Value v;
    v.type = type;
    return v;
  }

  bool is(Type t) const { return type == t; }
  bool is_number() const { return type == Type::kBool || type == Type::kInt || type == Type::kFloat; }
  bool is_integral() const { return type == Type::kBool || type == Type::kInt; }
  int64_t as_int() const { return type == Type::kBool ? boolean : integer; }
  double as_real() const { return type == Type::kFloat ? real : static_cast<double>(as_int()); }
  const std::string& text() const { return string->text(); }
};

struct List : Object {
  std::vector<Value> items;
  bool tuple = false;
};

// Keeps insertion order, as Python does. Keys are hashed by a canonical text in which 1, 1.0 and True agree.
struct Dict : Object {
  std::vector<std::pair<Value, Value>> entries;
  std::unordered_map<std::string, size_t> index;

  const Value* find(const std::string& canonical) const {
    const auto it = index.find(canonical);
    return it == index.end() ? nullptr : &entries[it->second].second;
  }
  void put(std::string canonical, Value key, Value value);
  bool erase(const std::string& canonical);
};

// State behind the `loop` variable.
struct Loop : Object {
  const std::vector<Value>* items = nullptr;  // nullptr once the loop is over
  size_t at = 0, length = 0;
};

struct Macro : Object {
  const Stmt* definition = nullptr;
  Scope* scope = nullptr;  // where it was defined; outlives it
};

struct Method : Object {
  Value self;
  const std::string* name = nullptr;
};

// Arguments of a call, filter or test.
struct Args {
  std::vector<Value> positional;
  std::vector<std::pair<const std::string*, Value>> named;

  // By position or by name; nullptr if absent.
  const Value* get(size_t position, std::string_view name) const;
};

}  // namespace sluice::text::jinja
