// Result<T>: a value or an Error. Operating errors are values in Sluice; exceptions never cross a folder.
// Shaped like std::expected, which C++20 lacks. Not thread-safe by itself (a value type).
#pragma once
#include <cassert>
#include <string>
#include <utility>
#include <variant>

namespace sluice {

// What went wrong, as the edges need it: one table (base/result.cpp) maps it to HTTP status, API type and exit status.
enum class ErrorCode {
  kInvalidArgument,   // the caller's input is malformed or out of range
  kContextLength,     // prompt + output cannot fit the model or the cache
  kBadFile,           // a file's contents are not what its format demands
  kUnauthenticated,
  kNotFound,
  kMethodNotAllowed,
  kTimeout,
  kTooLarge,          // a body or header beyond its limit
  kOverloaded,        // a bounded queue is full: try later
  kUnavailable,       // loading, draining or faulted
  kUnsupported,       // well-formed, but nothing here can do it
  kIo,
  kInternal,
  kCancelled,
};

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;  // one line: what, the value, the limit
  std::string field;    // dotted path of the request field or flag; may be empty
};

// Row of the one table of error kinds.
struct ErrorTraits {
  int http_status;
  const char* api_type;  // OpenAI error.type
  const char* api_code;  // OpenAI error.code, nullptr for null
  int exit_status;       // 2 bad usage or input, 3 runtime fault, 130 interrupted
};
const ErrorTraits& traits(ErrorCode code);

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & { assert(ok()); return *std::get_if<0>(&state_); }
  const T& value() const& { assert(ok()); return *std::get_if<0>(&state_); }
  T&& value() && { assert(ok()); return std::move(*std::get_if<0>(&state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Error& error() const { assert(!ok()); return *std::get_if<1>(&state_); }

 private:
  std::variant<T, Error> state_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)), ok_(false) {}
  bool ok() const { return ok_; }
  explicit operator bool() const { return ok_; }
  const Error& error() const { assert(!ok_); return error_; }

 private:
  Error error_;
  bool ok_ = true;
};
using Status = Result<void>;

inline Error invalid(std::string message, std::string field = {}) {
  return {ErrorCode::kInvalidArgument, std::move(message), std::move(field)};
}
inline Error bad_file(std::string message) { return {ErrorCode::kBadFile, std::move(message), {}}; }

// Returns the error of a Status or Result expression from the enclosing function.
#define SLUICE_TRY(expr)                                   \
  do {                                                     \
    if (auto sluice_status_ = (expr); !sluice_status_.ok()) \
      return sluice_status_.error();                       \
  } while (0)
#define SLUICE_CONCAT_(a, b) a##b
#define SLUICE_CONCAT(a, b) SLUICE_CONCAT_(a, b)
#define SLUICE_ASSIGN_(tmp, decl, expr) \
  auto tmp = (expr);                    \
  if (!tmp.ok()) return tmp.error();    \
  decl = std::move(*tmp)
// SLUICE_ASSIGN(auto x, f()): x is f's value, or f's error is returned.
#define SLUICE_ASSIGN(decl, expr) SLUICE_ASSIGN_(SLUICE_CONCAT(sluice_result_, __LINE__), decl, expr)

// Always-on check of a programmer's assumption: prints and aborts. Never for anything a user can cause.
[[noreturn]] void check_failed(const char* expr, const char* file, int line);
#define SLUICE_CHECK(cond) ((cond) ? void(0) : ::sluice::check_failed(#cond, __FILE__, __LINE__))

}  // namespace sluice
