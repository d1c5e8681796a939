// RequestReader: bytes of one HTTP/1.x request -> Request, within limits. Internal to http/; knows no socket and no time.
// One reader belongs to one thread and reads one request. Sizes in bytes. Nothing of the input is trusted.
#pragma once
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "http/exchange.h"

namespace sluice::http {

struct BodyLimits {
  size_t usual = 0;
  std::vector<std::pair<std::string, size_t>> of_path;   // other paths have the usual one
};

class RequestReader {
 public:
  enum class State {
    kNeedMore,
    kWantsContinue,  // the client waits for "100 Continue" before it sends the body; said once
    kDone,
    kFailed,         // error_status() and error_message() tell; the connection must close after the reply
  };

  RequestReader(size_t max_header_bytes, BodyLimits max_body_bytes);
  ~RequestReader();

  // Eats what it can from the front of `bytes`; what follows the request stays there.
  State feed(std::string& bytes);

  bool begun() const { return begun_; }      // any byte of the request was seen
  bool head_done() const { return head_checked_; }
  int error_status() const { return error_status_; }
  const std::string& error_message() const { return error_message_; }
  bool keep_alive() const;                   // after kDone
  bool http_1_0() const;                     // after the head
  bool is_large() const { return large_; }   // after the head: the body is, or may become, larger than the usual limit
  Request take();                            // after kDone, once

 private:
  struct Parser;
  State fail(int status, std::string message);
  State check_head();
  State check_body_limit();

  std::unique_ptr<Parser> parser_;
  size_t max_header_bytes_;
  BodyLimits limits_;
  size_t max_body_bytes_;                    // of this request's path, once the head is there
  bool begun_ = false, head_checked_ = false, large_ = false;
  int error_status_ = 0;
  std::string error_message_;
};

// "%41" -> "A"; a '%' without two hex digits stays as it is.
std::string percent_decode(std::string_view s);
const char* reason_phrase(int status);
// The JSON body for an error that http/ itself reports. The message must need no escapes.
std::string error_body(int status, std::string_view message);

}  // namespace sluice::http
