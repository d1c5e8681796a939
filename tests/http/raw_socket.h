// RawSocket: a blocking loopback socket for tests that need exact bytes. One thread.
#pragma once
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace sluice::http::test {

class RawSocket {
 public:
  explicit RawSocket(uint16_t port, int receive_buffer = 0) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer) ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    connected_ = ::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
  }
  ~RawSocket() { close(); }
  RawSocket(const RawSocket&) = delete;
  bool connected() const { return connected_; }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  void half_close() { ::shutdown(fd_, SHUT_WR); }
  bool send(std::string_view s) {
    while (!s.empty()) {
      const ssize_t n = ::send(fd_, s.data(), s.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      s.remove_prefix(size_t(n));
    }
    return true;
  }
  // Reads until `end` is seen, the peer closes or ms pass.
  std::string read_until(std::string_view end, int ms = 5000) {
    std::string got;
    char chunk[8192];
    while (end.empty() || got.find(end) == got.npos) {
      pollfd p{fd_, POLLIN, 0};
      if (::poll(&p, 1, ms) <= 0) break;
      const ssize_t n = ::recv(fd_, chunk, sizeof chunk, 0);
      if (n <= 0) {
        closed_ = true;
        break;
      }
      got.append(chunk, size_t(n));
    }
    return got;
  }
  std::string read_all(int ms = 5000) { return read_until({}, ms); }
  bool closed() const { return closed_; }

 private:
  int fd_;
  bool connected_ = false, closed_ = false;
};

}  // namespace sluice::http::test
