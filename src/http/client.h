// Client: a small blocking HTTP/1.1 client for load generators and tests. One request a connection unless keep_alive.
// One Client belongs to one thread. Plain sockets, no TLS. Errors: kInvalidArgument for a bad URL, kIo for connect, send and
// receive failures and malformed replies, kTimeout, kTooLarge for a reply beyond max_body_bytes.
#pragma once
#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "http/exchange.h"

namespace sluice::http {

struct Url {
  std::string host;
  uint16_t port = 80;
  std::string path = "/";     // with the query
};
// "http://host:port/path"; the scheme may be left out, https is refused.
Result<Url> parse_url(std::string_view text);

struct ClientOptions {
  std::chrono::milliseconds connect_timeout{10'000};
  std::chrono::milliseconds read_timeout{120'000};   // without a byte
  size_t max_body_bytes = 1 << 30;
  bool keep_alive = true;
};

struct Response {
  int status = 0;
  Headers headers;            // names in lower case
  std::string body;           // empty when a callback took it
  std::string_view header(std::string_view name) const;
};

// Splits a byte stream into Server-Sent Events' data. Feeds lines of "data:" to the callback, joined an event at a time.
class SseSplitter {
 public:
  explicit SseSplitter(std::function<void(std::string_view data)> on_event) : on_event_(std::move(on_event)) {}
  void push(std::string_view bytes);

 private:
  void line(std::string_view text);
  std::function<void(std::string_view)> on_event_;
  std::string partial_, data_;
  bool has_data_ = false;
};

class Client {
 public:
  Client(std::string host, uint16_t port, ClientOptions options = {});
  ~Client();
  Client(const Client&) = delete;

  // Body bytes, decoded, as they come; false gives the request up (the connection is closed). Called only for status 2xx:
  // an error's body always goes to Response::body.
  using OnBody = std::function<bool(std::string_view)>;
  Result<Response> request(std::string_view method, std::string_view path, const Headers& headers, std::string_view body,
                           const OnBody& on_body = {});
  Result<Response> get(std::string_view path, const Headers& headers = {}) { return request("GET", path, headers, {}); }
  Result<Response> post_json(std::string_view path, std::string_view body, Headers headers = {}, const OnBody& on_body = {});
  void close();

 private:
  Status connect();
  Status send_all(std::string_view bytes);
  Result<size_t> receive();                             // appends to in_; 0 at the end of the stream
  Result<std::string> line();
  Result<Response> read_reply(bool head_only, const OnBody& on_body);
  Status read_body(Response& response, const OnBody& on_body);
  Status read_exact(size_t n, Response& response, const OnBody& on_body);
  Status deliver(std::string_view bytes, Response& response, const OnBody& on_body);

  std::string host_;
  uint16_t port_;
  ClientOptions options_;
  int fd_ = -1;
  std::string in_;
  size_t delivered_ = 0;
};

}  // namespace sluice::http
