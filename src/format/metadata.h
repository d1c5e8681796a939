// Metadata: the typed key-value pairs of a model file. Values were checked when they were read; getters say what is missing
// or of the wrong type, by key. Immutable once read; any thread.
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace sluice::format {

// Integers of every width widen to int64 (a u64 beyond it is refused when read); floats to double.
using Value = std::variant<int64_t, double, bool, std::string, std::vector<int64_t>, std::vector<double>,
                           std::vector<bool>, std::vector<std::string>>;

class Metadata {
 public:
  bool has(std::string_view key) const { return find(key) != nullptr; }
  const Value* find(std::string_view key) const;
  // Errors: kBadFile naming the key: missing, of another type, or outside [min, max].
  Result<int64_t> integer(std::string_view key, int64_t min, int64_t max) const;
  Result<int64_t> integer_or(std::string_view key, int64_t fallback, int64_t min, int64_t max) const;
  Result<double> number_or(std::string_view key, double fallback) const;
  Result<std::string> string(std::string_view key) const;
  std::string string_or(std::string_view key, std::string fallback) const;
  // -1 when absent, else 0 or 1.
  Result<int> flag(std::string_view key) const;
  template <class T>
  Result<const std::vector<T>*> array(std::string_view key) const {
    const Value* v = find(key);
    if (!v) return bad_file(std::string(key) + ": missing");
    if (const auto* a = std::get_if<std::vector<T>>(v)) return a;
    return bad_file(std::string(key) + ": an array of another type was expected");
  }
  const std::map<std::string, Value, std::less<>>& all() const { return values_; }
  // False when the key is there already.
  bool insert(std::string key, Value value) { return values_.emplace(std::move(key), std::move(value)).second; }

 private:
  std::map<std::string, Value, std::less<>> values_;
};

// One line for people: scalars as they are, long strings and arrays shortened.
std::string describe(const Value& value, size_t max_chars = 60);

}  // namespace sluice::format
