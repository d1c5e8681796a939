// Server: HTTP/1.1 on Boost.Beast. Sockets, limits and time-outs live here; the meaning of requests does not.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "http/exchange.h"

namespace sluice::http {

struct ServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;                          // 0: any free port
  int threads = 2;
  size_t max_body_bytes = 32 << 20;              // beyond: 413
  std::vector<std::pair<std::string, size_t>> body_limits = {};  // paths with a larger limit of their own
  int max_large_bodies = 4;                      // bodies beyond max_body_bytes in memory at once; beyond: 503
  size_t max_header_bytes = 16 << 10;            // beyond: 431
  int max_connections = 4096;                    // beyond: 503 and close
  std::chrono::seconds read_timeout{30};         // a whole head, and between reads of a body (slow writers)
  std::chrono::seconds idle_timeout{75};         // keep-alive
  std::chrono::seconds write_timeout{30};        // without progress (slow readers): the exchange is abandoned
};

class Server {
 public:
  // Binds and listens. Errors: kIo naming host:port and the reason.
  static Result<std::unique_ptr<Server>> listen(ServerOptions options, Handler handler);
  ~Server();                                     // stops at once
  uint16_t port() const;
  void start();                                  // begins to accept; returns at once
  // Stops accepting; open exchanges go on, keep-alive connections close after the one in hand.
  void drain();
  int open_connections() const;
  void stop();                                   // closes everything; joins the threads

 private:
  friend class Connection;
  struct State;
  explicit Server(std::shared_ptr<State> state);
  std::shared_ptr<State> state_;
};

}  // namespace sluice::http
