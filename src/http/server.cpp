#include "http/server.h"

#include <boost/asio/post.hpp>
#include <boost/asio/strand.hpp>

#include "http/connection.h"

namespace sluice::http {
namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {
// Connections beyond the limit that are being told so at one time; further ones are closed without a word.
constexpr size_t kMaxRefusals = 256;
constexpr std::chrono::milliseconds kAcceptRetry{100};  // after running out of descriptors, say
}  // namespace

Server::State::State(ServerOptions o, Handler h)
    : options(std::move(o)), handler(std::move(h)), acceptor(asio::make_strand(io)), accept_retry(acceptor.get_executor()) {}

void Server::State::accept() {
  if (!acceptor.is_open()) return;
  acceptor.async_accept(asio::make_strand(io), [self = shared_from_this()](const error_code& ec, tcp::socket socket) {
    if (!ec) self->on_accept(std::move(socket));
    if (!self->acceptor.is_open()) return;
    if (!ec || ec == asio::error::connection_aborted) return self->accept();
    self->accept_retry.expires_after(kAcceptRetry);
    self->accept_retry.async_wait([self](const error_code& stopped) {
      if (!stopped) self->accept();
    });
  });
}

void Server::State::on_accept(tcp::socket socket) {
  auto connection = std::make_shared<Connection>(shared_from_this(), std::move(socket));
  bool full;
  {
    std::lock_guard lock(mutex);
    if (stopping || draining) return;
    full = open.size() - refused >= size_t(options.max_connections);
    if (full && refused >= kMaxRefusals) return;
    refused += full;
    open.emplace(connection.get(), Entry{connection, full});
  }
  asio::post(connection->executor(), [connection, full] { full ? connection->refuse() : connection->run(); });
}

void Server::State::forget(Connection* connection) {
  std::lock_guard lock(mutex);
  const auto it = open.find(connection);
  if (it == open.end()) return;
  refused -= it->second.refused;
  open.erase(it);
}

void Server::State::for_each_connection(const std::function<void(Connection&)>& f) {
  std::vector<std::shared_ptr<Connection>> all;  // called unlocked: the last reference may go here
  {
    std::lock_guard lock(mutex);
    for (auto& [_, entry] : open)
      if (auto c = entry.connection.lock()) all.push_back(std::move(c));
  }
  for (auto& c : all) f(*c);
}

Server::Server(std::shared_ptr<State> state) : state_(std::move(state)) {}
Server::~Server() { stop(); }

Result<std::unique_ptr<Server>> Server::listen(ServerOptions options, Handler handler) {
  auto state = std::make_shared<State>(std::move(options), std::move(handler));
  const auto& o = state->options;
  const auto fail = [&](const error_code& ec) {
    return Error{ErrorCode::kIo, "cannot listen on " + o.host + ":" + std::to_string(o.port) + ": " + ec.message(), {}};
  };
  error_code ec;
  tcp::resolver resolver(state->io);
  const auto found = resolver.resolve(o.host, std::to_string(o.port),
                                      tcp::resolver::passive | tcp::resolver::numeric_service, ec);
  if (ec || found.empty()) return fail(ec ? ec : asio::error::make_error_code(asio::error::host_not_found));
  const tcp::endpoint endpoint = found.begin()->endpoint();
  auto& a = state->acceptor;
  if (a.open(endpoint.protocol(), ec); ec) return fail(ec);
  a.set_option(tcp::acceptor::reuse_address(true), ec);
  if (a.bind(endpoint, ec); ec) return fail(ec);
  if (a.listen(asio::socket_base::max_listen_connections, ec); ec) return fail(ec);
  state->options.port = a.local_endpoint(ec).port();
  return std::unique_ptr<Server>(new Server(std::move(state)));
}

uint16_t Server::port() const { return state_->options.port; }

void Server::start() {
  {
    std::lock_guard lock(state_->mutex);
    if (state_->started || state_->stopping) return;
    state_->started = true;
  }
  asio::post(state_->acceptor.get_executor(), [state = state_] { state->accept(); });
  for (int i = 0; i < std::max(1, state_->options.threads); ++i)
    state_->threads.emplace_back([state = state_] { state->io.run(); });
}

void Server::State::drain() {
  draining = true;
  asio::post(acceptor.get_executor(), [self = shared_from_this()] {
    error_code ec;
    self->acceptor.close(ec);
    self->accept_retry.cancel(ec);
  });
  for_each_connection([](Connection& c) { c.close_soon(true); });
}

void Server::drain() {
  {
    std::lock_guard lock(state_->mutex);
    if (state_->stopping || !state_->started) return;
  }
  state_->drain();
}

int Server::open_connections() const {
  std::lock_guard lock(state_->mutex);
  return int(state_->open.size());
}

// Closes everything and lets the io_context run dry, rather than stopping it: handlers that were left in a stopped one
// would keep their connections, and through them the io_context, alive for ever.
void Server::stop() {
  bool started;
  {
    std::lock_guard lock(state_->mutex);
    if (state_->stopping) return;
    state_->stopping = true;
    started = state_->started;
  }
  if (started) {
    state_->drain();
    state_->for_each_connection([](Connection& c) { c.close_soon(false); });
    state_->work.reset();
    for (auto& thread : state_->threads) thread.join();
  } else {
    error_code ec;
    state_->acceptor.close(ec);
  }
}

}  // namespace sluice::http
