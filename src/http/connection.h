// Connection: one socket's life. Reads requests, asks the handler, polls its Exchange, writes. Internal to http/.
// Everything runs on the connection's strand, save close_soon() and the wake function, which post to it.
#pragma once
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "http/request_reader.h"
#include "http/server.h"

namespace sluice::http {

class Connection;

// What the server and its connections share. A connection keeps it alive; it never keeps a connection alive.
struct Server::State : std::enable_shared_from_this<Server::State> {
  State(ServerOptions o, Handler h);

  ServerOptions options;
  Handler handler;
  boost::asio::io_context io;
  // Keeps the threads until stop(), also when a drain leaves nothing to do.
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work{io.get_executor()};
  boost::asio::ip::tcp::acceptor acceptor;
  boost::asio::steady_timer accept_retry;
  std::vector<std::thread> threads;
  std::atomic<bool> draining{false};
  std::atomic<int> large_bodies{0};
  std::mutex mutex;                                                // guards what follows
  struct Entry {
    std::weak_ptr<Connection> connection;
    bool refused;                                                  // beyond the limit: does not count against it
  };
  std::unordered_map<Connection*, Entry> open;
  size_t refused = 0;
  bool stopping = false, started = false;

  void accept();
  void on_accept(boost::asio::ip::tcp::socket socket);
  void drain();
  void forget(Connection* connection);
  void for_each_connection(const std::function<void(Connection&)>& f);
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(std::shared_ptr<Server::State> server, boost::asio::ip::tcp::socket socket);
  ~Connection();
  void run();                    // on the strand
  void refuse();                 // on the strand: 503 and close
  void close_soon(bool if_idle); // any thread
  auto executor() { return socket_.get_executor(); }

 private:
  using Time = std::chrono::steady_clock::time_point;
  enum class Phase { kIdle, kReading, kAnswering, kLingering, kClosed };

  void read_more();
  void on_read(const boost::system::error_code& ec, size_t n);
  void advance();
  bool take_place_if_large();
  void begin_exchange();
  void pump();
  void append_head(const Head& head, size_t body_bytes, bool done);
  void append_body(const std::string& body, bool done);
  void write_more();
  void on_write(const boost::system::error_code& ec, size_t n);
  void on_written();
  void reply_and_close(int status, std::string_view message);
  void linger();
  void close();
  void drop_exchange() noexcept;
  void set_read_deadline(std::chrono::seconds after);
  void arm();
  void on_timer();
  std::function<void()> make_waker();

  std::shared_ptr<Server::State> server_;
  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer timer_;
  std::string remote_;
  std::array<char, 8192> chunk_;
  std::string pending_;                    // bytes read and not yet parsed (pipelined requests wait here)
  std::unique_ptr<RequestReader> reader_;
  std::shared_ptr<void> large_body_;       // a place among max_large_bodies, kept until the request is answered
  std::unique_ptr<Exchange> exchange_;
  std::string out_;                        // being written: must not change while writing_
  std::string next_;                       // to be written after it
  size_t out_sent_ = 0;
  Phase phase_ = Phase::kIdle;
  Time read_deadline_ = Time::max(), write_deadline_ = Time::max(), armed_ = Time::max();
  std::shared_ptr<std::atomic<bool>> wake_posted_;
  bool reading_ = false, writing_ = false, polling_ = false;
  bool keep_alive_ = true, http_1_0_ = false, head_request_ = false;
  bool head_sent_ = false, chunked_ = false, exchange_done_ = false, linger_after_ = false;
};

}  // namespace sluice::http
