#include "api/fields.h"

#include <cmath>

namespace sluice::api {
namespace {

std::string number_text(double v) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", v);
  return text;
}

}  // namespace

bool as_integer(const Json& json, int64_t& out) {
  if (json.is_number_unsigned()) {
    const uint64_t u = json.get<uint64_t>();
    if (u > uint64_t(INT64_MAX)) return false;
    out = int64_t(u);
    return true;
  }
  if (json.is_number_integer()) {
    out = json.get<int64_t>();
    return true;
  }
  if (!json.is_number_float()) return false;
  const double d = json.get<double>();
  if (!(std::fabs(d) <= 9007199254740992.0) || d != std::floor(d)) return false;
  out = int64_t(d);
  return true;
}

const Json* Fields::find(std::string_view name) const {
  const auto it = object_.find(name);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

void Fields::fail(std::string_view name, std::string message) {
  fail(invalid(path(name) + " " + message, path(name)));
}

void Fields::fail(Error error) {
  if (status_.ok()) status_ = std::move(error);
}

int64_t Fields::integer(std::string_view name, int64_t lo, int64_t hi, int64_t otherwise) {
  const Json* v = find(name);
  if (!v) return otherwise;
  int64_t out = 0;
  if (as_integer(*v, out) && out >= lo && out <= hi) return out;
  const std::string range = lo == INT64_MIN ? "" : hi >= INT32_MAX ? " of at least " + std::to_string(lo)
                                                  : " from " + std::to_string(lo) + " to " + std::to_string(hi);
  fail(name, "must be an integer" + range + ", got " + brief(*v));
  return otherwise;
}

double Fields::number(std::string_view name, double lo, double hi, double otherwise, bool open_low) {
  const Json* v = find(name);
  if (!v) return otherwise;
  if (v->is_number()) {
    const double out = v->get<double>();
    if (std::isfinite(out) && out <= hi && (open_low ? out > lo : out >= lo)) return out;
  }
  fail(name, std::string("must be a number ") + (open_low ? "above " : "from ") + number_text(lo) + " " +
                 (open_low ? "and at most " : "to ") + number_text(hi) + ", got " + brief(*v));
  return otherwise;
}

bool Fields::boolean(std::string_view name, bool otherwise) {
  const Json* v = find(name);
  if (!v) return otherwise;
  if (v->is_boolean()) return v->get<bool>();
  fail(name, "must be true or false, got " + brief(*v));
  return otherwise;
}

std::string Fields::string(std::string_view name, std::string otherwise, size_t max_bytes) {
  const Json* v = find(name);
  if (!v) return otherwise;
  if (!v->is_string()) {
    fail(name, "must be a string, got " + brief(*v));
    return otherwise;
  }
  std::string out = v->get<std::string>();
  if (out.size() > max_bytes)
    fail(name, "must be at most " + std::to_string(max_bytes) + " bytes, got " + std::to_string(out.size()));
  return out;
}

Result<std::vector<int32_t>> token_ids(const Json& array, int vocab_size, const std::string& field) {
  if (!array.is_array()) return invalid(field + " must be an array of token ids, got " + brief(array), field);
  std::vector<int32_t> out;
  out.reserve(array.size());
  for (const Json& v : array) {
    int64_t id = -1;
    if (!v.is_number() || !as_integer(v, id) || id < 0 || id >= vocab_size)
      return invalid(field + " holds " + brief(v) + ", which is no token id: the vocabulary has ids from 0 to " +
                         std::to_string(vocab_size - 1), field);
    out.push_back(int32_t(id));
  }
  return out;
}

}  // namespace sluice::api
