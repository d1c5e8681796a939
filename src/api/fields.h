// Fields: typed, range-checked access to the members of a request object. null counts as absent. The first error is kept
// and later reads give defaults, so a parser reads everything and asks status() once. One thread.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api/json.h"
#include "base/result.h"

namespace sluice::api {

class Fields {
 public:
  // `object` must outlive this. prefix stands before every name in errors ("stream_options.").
  explicit Fields(const Json& object, std::string prefix = {}) : object_(object), prefix_(std::move(prefix)) {}

  // The member, or null when absent or null.
  const Json* find(std::string_view name) const;
  bool has(std::string_view name) const { return find(name) != nullptr; }

  int64_t integer(std::string_view name, int64_t lo, int64_t hi, int64_t otherwise);
  double number(std::string_view name, double lo, double hi, double otherwise, bool open_low = false);
  bool boolean(std::string_view name, bool otherwise);
  std::string string(std::string_view name, std::string otherwise, size_t max_bytes = SIZE_MAX);

  void fail(std::string_view name, std::string message);      // message follows the field's name
  void fail(Error error);
  const Status& status() const { return status_; }
  std::string path(std::string_view name) const { return prefix_ + std::string(name); }

 private:
  const Json& object_;
  std::string prefix_;
  Status status_;
};

// An integer JSON value, 3 and 3.0 alike; false for anything else or beyond int64.
bool as_integer(const Json& json, int64_t& out);

// [1, 2, 3] -> ids, each inside the vocabulary; the error names the id, the limit and `field`.
Result<std::vector<int32_t>> token_ids(const Json& array, int vocab_size, const std::string& field);

}  // namespace sluice::api
