#include "http/client.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

namespace sluice::http {
namespace {

constexpr size_t kMaxLine = 64 << 10;

Error io(std::string message) { return {ErrorCode::kIo, std::move(message), {}}; }

// Waits until the socket is ready for `events`; a timeout is an error.
Status wait_for(int fd, short events, std::chrono::milliseconds timeout, const char* what) {
  pollfd p{fd, events, 0};
  const auto until = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
    const int n = ::poll(&p, 1, left.count() < 0 ? 0 : int(left.count()));
    if (n > 0) return {};
    if (n == 0) return Error{ErrorCode::kTimeout, std::string(what) + " took longer than " + std::to_string(timeout.count()) + " ms", {}};
    if (errno != EINTR) return io(std::string("poll: ") + std::strerror(errno));
  }
}

std::string_view trim(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\t')) s.remove_suffix(1);
  return s;
}

}  // namespace

Result<Url> parse_url(std::string_view text) {
  Url url;
  if (text.starts_with("http://")) text.remove_prefix(7);
  else if (text.find("://") != text.npos) return invalid("only http:// URLs are supported, got " + std::string(text));
  const size_t slash = text.find('/');
  if (slash != text.npos) url.path = std::string(text.substr(slash));
  std::string_view host = text.substr(0, slash);
  const size_t colon = host.rfind(':');
  if (colon != host.npos && host.find(']', colon) == host.npos) {
    const std::string_view port = host.substr(colon + 1);
    const auto [end, ec] = std::from_chars(port.data(), port.data() + port.size(), url.port);
    if (ec != std::errc() || end != port.data() + port.size() || url.port == 0)
      return invalid("bad port in URL: " + std::string(port));
    host = host.substr(0, colon);
  }
  if (host.size() >= 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  if (host.empty()) return invalid("no host in URL");
  url.host = std::string(host);
  return url;
}

std::string_view Response::header(std::string_view name) const {
  for (const auto& [k, v] : headers)
    if (k == name) return v;
  return {};
}

void SseSplitter::push(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    if (end == bytes.npos) {
      partial_.append(bytes);
      return;
    }
    if (partial_.empty()) {
      line(bytes.substr(0, end));
    } else {
      partial_.append(bytes.substr(0, end));
      line(partial_);
      partial_.clear();
    }
    bytes.remove_prefix(end + 1);
  }
}

void SseSplitter::line(std::string_view text) {
  if (!text.empty() && text.back() == '\r') text.remove_suffix(1);
  if (text.empty()) {
    if (has_data_) on_event_(data_);
    data_.clear();
    has_data_ = false;
    return;
  }
  if (!text.starts_with("data:")) return;  // comments, event names and ids
  text.remove_prefix(5);
  if (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  if (has_data_) data_ += '\n';
  data_.append(text);
  has_data_ = true;
}

Client::Client(std::string host, uint16_t port, ClientOptions options)
    : host_(std::move(host)), port_(port), options_(options) {}
Client::~Client() { close(); }

void Client::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
  in_.clear();
}

Status Client::connect() {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (const int e = ::getaddrinfo(host_.c_str(), std::to_string(port_).c_str(), &hints, &found); e != 0)
    return io("cannot resolve " + host_ + ": " + ::gai_strerror(e));
  Status last = io("no address for " + host_);
  for (addrinfo* a = found; a && fd_ < 0; a = a->ai_next) {
    const int fd = ::socket(a->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) continue;
    int error = ::connect(fd, a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      last = wait_for(fd, POLLOUT, options_.connect_timeout, "connecting");
      socklen_t size = sizeof error;
      if (!last.ok() || ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
        ::close(fd);
        continue;
      }
    }
    if (error != 0) {
      last = io("cannot connect to " + host_ + ":" + std::to_string(port_) + ": " + std::strerror(error));
      ::close(fd);
      continue;
    }
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    fd_ = fd;
  }
  ::freeaddrinfo(found);
  return fd_ >= 0 ? Status{} : last;
}

Status Client::send_all(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n >= 0) {
      bytes.remove_prefix(size_t(n));
    } else if (errno == EAGAIN) {
      // A server that refuses a body answers before it has read it: the reply matters more than the rest of the body.
      SLUICE_TRY(wait_for(fd_, POLLOUT | POLLIN, options_.read_timeout, "sending"));
      char peek;
      if (::recv(fd_, &peek, 1, MSG_PEEK) > 0) return {};
    } else if (errno != EINTR) {
      return io(std::string("send: ") + std::strerror(errno));
    }
  }
  return {};
}

Result<size_t> Client::receive() {
  char chunk[16384];
  for (;;) {
    const ssize_t n = ::recv(fd_, chunk, sizeof chunk, 0);
    if (n >= 0) {
      in_.append(chunk, size_t(n));
      return size_t(n);
    }
    if (errno == EAGAIN) SLUICE_TRY(wait_for(fd_, POLLIN, options_.read_timeout, "waiting for the reply"));
    else if (errno != EINTR) return io(std::string("receive: ") + std::strerror(errno));
  }
}

Result<std::string> Client::line() {
  size_t from = 0;
  for (;;) {
    const size_t end = in_.find('\n', from);
    if (end != in_.npos) {
      std::string out = in_.substr(0, end);
      if (!out.empty() && out.back() == '\r') out.pop_back();
      in_.erase(0, end + 1);
      return out;
    }
    if (in_.size() > kMaxLine) return io("malformed reply: a line longer than " + std::to_string(kMaxLine) + " bytes");
    from = in_.size();
    SLUICE_ASSIGN(const size_t n, receive());
    if (n == 0) return io("the server closed the connection in the middle of a reply");
  }
}

Result<Response> Client::post_json(std::string_view path, std::string_view body, Headers headers, const OnBody& on_body) {
  headers.emplace_back("Content-Type", "application/json");
  return request("POST", path, headers, body, on_body);
}

Result<Response> Client::request(std::string_view method, std::string_view path, const Headers& headers,
                                 std::string_view body, const OnBody& on_body) {
  std::string head;
  head.append(method).append(" ").append(path).append(" HTTP/1.1\r\nHost: ").append(host_);
  head.append(":").append(std::to_string(port_)).append("\r\n");
  for (const auto& [name, value] : headers) head.append(name).append(": ").append(value).append("\r\n");
  if (!body.empty() || method == "POST") head.append("Content-Length: ").append(std::to_string(body.size())).append("\r\n");
  if (!options_.keep_alive) head += "Connection: close\r\n";
  head += "\r\n";
  const bool reused = fd_ >= 0;
  for (int attempt = 0;; ++attempt) {
    if (fd_ < 0) SLUICE_TRY(connect());
    Status sent = send_all(head);
    if (sent.ok()) sent = send_all(body);
    // A failed send may still have an early reply behind it; read_reply finds out.
    Result<Response> reply = read_reply(method == "HEAD", on_body);
    if (reply.ok()) {
      if (!sent.ok() || !options_.keep_alive || reply->header("connection") == "close") close();
      return reply;
    }
    // A kept connection may have been closed under us while idle: once more on a new one, if nothing came back.
    const bool stale = reused && attempt == 0 && in_.empty() && delivered_ == 0 && reply.error().code == ErrorCode::kIo;
    close();
    if (!stale) return sent.ok() ? reply : Result<Response>(sent.error());
  }
}

Result<Response> Client::read_reply(bool head_only, const OnBody& on_body) {
  Response response;
  delivered_ = 0;
  do {  // 1xx replies come before the real one
    response.headers.clear();
    SLUICE_ASSIGN(const std::string status, line());
    if (!status.starts_with("HTTP/1.") || status.size() < 12) return io("malformed reply: bad status line");
    const auto [end, ec] = std::from_chars(status.data() + 9, status.data() + 12, response.status);
    if (ec != std::errc() || end != status.data() + 12) return io("malformed reply: bad status line");
    for (;;) {
      SLUICE_ASSIGN(const std::string text, line());
      if (text.empty()) break;
      const size_t colon = text.find(':');
      if (colon == text.npos) return io("malformed reply: bad header");
      std::string name = text.substr(0, colon);
      for (char& c : name) c = c >= 'A' && c <= 'Z' ? char(c + 32) : c;
      response.headers.emplace_back(std::move(name), trim(std::string_view(text).substr(colon + 1)));
      if (response.headers.size() > 1000) return io("malformed reply: too many headers");
    }
  } while (response.status >= 100 && response.status < 200);
  if (!head_only && response.status != 204 && response.status != 304)
    SLUICE_TRY(read_body(response, response.status / 100 == 2 ? on_body : OnBody{}));
  return response;
}

Status Client::read_body(Response& response, const OnBody& on_body) {
  if (response.header("transfer-encoding") == "chunked") {
    for (;;) {
      SLUICE_ASSIGN(const std::string text, line());
      size_t size = 0;
      const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), size, 16);
      if (ec != std::errc() || end == text.data()) return io("malformed reply: bad chunk size");
      SLUICE_TRY(read_exact(size, response, on_body));
      if (size == 0) break;
      SLUICE_ASSIGN(const std::string blank, line());
      if (!blank.empty()) return io("malformed reply: bad chunk end");
    }
    for (;;) {  // trailers
      SLUICE_ASSIGN(const std::string text, line());
      if (text.empty()) return {};
    }
  }
  if (const std::string_view length = response.header("content-length"); !length.empty()) {
    size_t size = 0;
    const auto [end, ec] = std::from_chars(length.data(), length.data() + length.size(), size);
    if (ec != std::errc() || end != length.data() + length.size()) return io("malformed reply: bad Content-Length");
    return read_exact(size, response, on_body);
  }
  for (;;) {  // until the server closes
    SLUICE_TRY(deliver(in_, response, on_body));
    in_.clear();
    SLUICE_ASSIGN(const size_t n, receive());
    if (n == 0) break;
  }
  close();
  return {};
}

Status Client::read_exact(size_t n, Response& response, const OnBody& on_body) {
  while (n > 0) {
    if (in_.empty()) {
      SLUICE_ASSIGN(const size_t got, receive());
      if (got == 0) return io("the server closed the connection in the middle of a reply");
    }
    const size_t take = std::min(n, in_.size());
    SLUICE_TRY(deliver(std::string_view(in_).substr(0, take), response, on_body));
    in_.erase(0, take);
    n -= take;
  }
  return {};
}

Status Client::deliver(std::string_view bytes, Response& response, const OnBody& on_body) {
  if (bytes.empty()) return {};
  delivered_ += bytes.size();
  if (delivered_ > options_.max_body_bytes)
    return Error{ErrorCode::kTooLarge, "the reply is larger than " + std::to_string(options_.max_body_bytes) + " bytes", {}};
  if (!on_body) {
    response.body.append(bytes);
    return {};
  }
  if (!on_body(bytes)) return Error{ErrorCode::kCancelled, "given up by the caller", {}};
  return {};
}

}  // namespace sluice::http
