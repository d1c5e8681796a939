#include "base/result.h"

#include <cstdio>
#include <cstdlib>

namespace sluice {

const ErrorTraits& traits(ErrorCode code) {
  static constexpr ErrorTraits kInvalid{400, "invalid_request_error", nullptr, 2};
  static constexpr ErrorTraits kContext{400, "invalid_request_error", "context_length_exceeded", 2};
  static constexpr ErrorTraits kFile{500, "server_error", nullptr, 2};
  static constexpr ErrorTraits kAuth{401, "authentication_error", "invalid_api_key", 2};
  static constexpr ErrorTraits kMissing{404, "invalid_request_error", "not_found", 2};
  static constexpr ErrorTraits kMethod{405, "invalid_request_error", "method_not_allowed", 2};
  static constexpr ErrorTraits kLate{408, "invalid_request_error", "timeout", 3};
  static constexpr ErrorTraits kLarge{413, "invalid_request_error", "request_too_large", 2};
  static constexpr ErrorTraits kBusy{429, "rate_limit_error", "rate_limit_exceeded", 3};
  static constexpr ErrorTraits kDown{503, "service_unavailable_error", "server_is_overloaded", 3};
  static constexpr ErrorTraits kUnsupported{400, "invalid_request_error", "unsupported", 2};
  static constexpr ErrorTraits kIo{500, "server_error", nullptr, 3};
  static constexpr ErrorTraits kFault{500, "server_error", nullptr, 3};
  static constexpr ErrorTraits kStopped{499, "invalid_request_error", "cancelled", 130};
  switch (code) {
    case ErrorCode::kInvalidArgument: return kInvalid;
    case ErrorCode::kContextLength: return kContext;
    case ErrorCode::kBadFile: return kFile;
    case ErrorCode::kUnauthenticated: return kAuth;
    case ErrorCode::kNotFound: return kMissing;
    case ErrorCode::kMethodNotAllowed: return kMethod;
    case ErrorCode::kTimeout: return kLate;
    case ErrorCode::kTooLarge: return kLarge;
    case ErrorCode::kOverloaded: return kBusy;
    case ErrorCode::kUnavailable: return kDown;
    case ErrorCode::kUnsupported: return kUnsupported;
    case ErrorCode::kIo: return kIo;
    case ErrorCode::kInternal: return kFault;
    case ErrorCode::kCancelled: return kStopped;
  }
  return kFault;
}

void check_failed(const char* expr, const char* file, int line) {
  std::fprintf(stderr, "sluice: internal check failed: %s (%s:%d)\n", expr, file, line);
  std::abort();
}

}  // namespace sluice
