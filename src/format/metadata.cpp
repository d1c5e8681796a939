#include "format/metadata.h"

#include <cmath>

namespace sluice::format {
namespace {

Error wrong_type(std::string_view key, const char* wanted) {
  return bad_file(std::string(key) + ": " + wanted + " was expected");
}

}  // namespace

const Value* Metadata::find(std::string_view key) const {
  auto it = values_.find(key);
  return it == values_.end() ? nullptr : &it->second;
}

Result<int64_t> Metadata::integer(std::string_view key, int64_t min, int64_t max) const {
  const Value* v = find(key);
  if (!v) return bad_file(std::string(key) + ": missing");
  const auto* i = std::get_if<int64_t>(v);
  if (!i) return wrong_type(key, "an integer");
  if (*i < min || *i > max)
    return bad_file(std::string(key) + ": " + std::to_string(*i) + " is outside " + std::to_string(min) + ".." +
                    std::to_string(max));
  return *i;
}

Result<int64_t> Metadata::integer_or(std::string_view key, int64_t fallback, int64_t min, int64_t max) const {
  if (!has(key)) return fallback;
  return integer(key, min, max);
}

Result<double> Metadata::number_or(std::string_view key, double fallback) const {
  const Value* v = find(key);
  if (!v) return fallback;
  double d = 0;
  if (const auto* x = std::get_if<double>(v)) d = *x;
  else if (const auto* i = std::get_if<int64_t>(v)) d = double(*i);
  else return wrong_type(key, "a number");
  if (!std::isfinite(d)) return bad_file(std::string(key) + ": not finite");
  return d;
}

Result<std::string> Metadata::string(std::string_view key) const {
  const Value* v = find(key);
  if (!v) return bad_file(std::string(key) + ": missing");
  if (const auto* s = std::get_if<std::string>(v)) return *s;
  return wrong_type(key, "a string");
}

std::string Metadata::string_or(std::string_view key, std::string fallback) const {
  const Value* v = find(key);
  const auto* s = v ? std::get_if<std::string>(v) : nullptr;
  return s ? *s : fallback;
}

Result<int> Metadata::flag(std::string_view key) const {
  const Value* v = find(key);
  if (!v) return -1;
  if (const auto* b = std::get_if<bool>(v)) return int(*b);
  return wrong_type(key, "a bool");
}

std::string describe(const Value& value, size_t max_chars) {
  auto text = std::visit(
      [](const auto& v) -> std::string {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, std::string>) return v;
        else if constexpr (std::is_same_v<T, bool>) return v ? "true" : "false";
        else if constexpr (std::is_arithmetic_v<T>) {
          std::string s = std::to_string(v);
          return s;
        } else return "[" + std::to_string(v.size()) + " values]";
      },
      value);
  for (char& c : text)
    if (static_cast<unsigned char>(c) < 32) c = ' ';
  if (text.size() > max_chars) text = text.substr(0, max_chars - 3) + "...";
  return text;
}

}  // namespace sluice::format
