// Request and Exchange: how http/ hands a parsed request to a handler and takes the answer, knowing nothing of its meaning.
// A handler returns an Exchange; the connection polls it on its own thread whenever it was woken, and writes what comes.
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice::http {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Request {
  std::string method;     // upper case
  std::string path;       // without the query, percent-decoded
  std::string query;
  Headers headers;        // names in lower case
  std::string body;
  std::string remote;     // address of the peer

  // First value of a header (lower-case name), or "".
  std::string_view header(std::string_view name) const {
    for (const auto& [k, v] : headers)
      if (k == name) return v;
    return {};
  }
};

// What an Exchange has to say now.
struct Head {
  int status = 200;
  Headers headers;        // Content-Length and Transfer-Encoding are the connection's business
  bool streaming = false; // false: everything is in the first poll's body, sent with Content-Length
};
struct Poll {
  std::optional<Head> head;  // in the first poll that has anything
  std::string body;          // bytes to append
  bool done = false;         // nothing follows
  bool broken = false;       // what was begun cannot be completed: the connection closes, so that nobody takes it for whole
};

class Exchange {
 public:
  virtual ~Exchange() = default;
  // Called once before the first poll. wake may be called from any thread, also after the exchange is gone, any number of
  // times; it never blocks.
  virtual void start(std::function<void()> wake) = 0;
  // What is ready now; an empty Poll when nothing is. Connection thread; must not block.
  virtual Poll poll() = 0;
  // The client is gone, or too slow: give everything up. No poll follows.
  virtual void abandon() noexcept = 0;
};

// An answer that is ready at once.
std::unique_ptr<Exchange> immediate(int status, Headers headers, std::string body);

// Called on a connection thread; must not block for long.
using Handler = std::function<std::unique_ptr<Exchange>(Request&&)>;

}  // namespace sluice::http
