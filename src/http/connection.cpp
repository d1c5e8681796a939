#include "http/connection.h"

#include <ctime>

#include <boost/asio/post.hpp>

namespace sluice::http {
namespace asio = boost::asio;
using boost::system::error_code;

namespace {

// A pipelining client may be this far ahead; beyond it the socket is left unread until the answer is out.
constexpr size_t kMaxPipelinedBytes = 64 << 10;
// How long a refused client may go on sending before the socket is closed under it. Closing at once would reset the
// connection and could take the reply away before it is read.
constexpr std::chrono::seconds kLinger{2};

std::string http_date() {
  const std::time_t now = std::time(nullptr);
  std::tm tm{};
  gmtime_r(&now, &tm);
  char text[40];
  std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &tm);
  return text;
}

void append_header(std::string& out, std::string_view name, std::string_view value) {
  out.append(name).append(": ");
  for (const char c : value) out += c == '\r' || c == '\n' ? ' ' : c;  // a value can never start a header of its own
  out += "\r\n";
}

void append_hex(std::string& out, size_t n) {
  char text[20];
  std::snprintf(text, sizeof text, "%zx\r\n", n);
  out += text;
}

}  // namespace

Connection::Connection(std::shared_ptr<Server::State> server, asio::ip::tcp::socket socket)
    : server_(std::move(server)), socket_(std::move(socket)), timer_(socket_.get_executor()) {
  error_code ec;
  socket_.set_option(asio::ip::tcp::no_delay(true), ec);
  const auto peer = socket_.remote_endpoint(ec);
  if (!ec) remote_ = peer.address().to_string();
}

Connection::~Connection() {
  drop_exchange();
  server_->forget(this);
}

void Connection::run() {
  set_read_deadline(server_->options.idle_timeout);
  read_more();
}

void Connection::refuse() { reply_and_close(503, "too many connections"); }

void Connection::close_soon(bool if_idle) {
  asio::post(socket_.get_executor(), [self = shared_from_this(), if_idle] {
    if (!if_idle || self->phase_ == Phase::kIdle) self->close();
  });
}

void Connection::read_more() {
  if (reading_ || phase_ == Phase::kClosed) return;
  if (phase_ == Phase::kAnswering && pending_.size() >= kMaxPipelinedBytes) return;
  reading_ = true;
  socket_.async_read_some(asio::buffer(chunk_), [self = shared_from_this()](const error_code& ec, size_t n) {
    self->reading_ = false;
    self->on_read(ec, n);
  });
}

void Connection::on_read(const error_code& ec, size_t n) {
  if (phase_ == Phase::kClosed) return;
  if (ec) return close();  // gone, or half-closed: nobody is there to read an answer
  if (phase_ == Phase::kLingering || linger_after_) return read_more();
  pending_.append(chunk_.data(), n);
  if (phase_ != Phase::kAnswering) advance();
  read_more();
}

// Parses what is pending until a request is whole or bytes run out.
void Connection::advance() {
  if (!reader_)
    reader_ = std::make_unique<RequestReader>(server_->options.max_header_bytes,
                                              BodyLimits{server_->options.max_body_bytes, server_->options.body_limits});
  const bool had_begun = reader_->begun();
  const auto state = reader_->feed(pending_);
  if (state != RequestReader::State::kFailed && !take_place_if_large())
    return reply_and_close(503, "too many large uploads at once");
  switch (state) {
    case RequestReader::State::kFailed:
      return reply_and_close(reader_->error_status(), reader_->error_message());
    case RequestReader::State::kDone:
      return begin_exchange();
    case RequestReader::State::kWantsContinue:
      next_ += "HTTP/1.1 100 Continue\r\n\r\n";
      write_more();
      break;
    case RequestReader::State::kNeedMore:
      break;
  }
  if (!reader_->begun()) return;
  phase_ = Phase::kReading;
  // The head has one deadline in all; a body has one between reads.
  if (!had_begun || reader_->head_done()) set_read_deadline(server_->options.read_timeout);
}

// False when there is no place for one more large body.
bool Connection::take_place_if_large() {
  if (large_body_ || !reader_->head_done() || !reader_->is_large()) return true;
  const auto server = server_;
  large_body_ = std::shared_ptr<void>(nullptr, [server](void*) { --server->large_bodies; });
  return ++server->large_bodies <= server->options.max_large_bodies;
}

void Connection::begin_exchange() {
  phase_ = Phase::kAnswering;
  read_deadline_ = Time::max();
  keep_alive_ = reader_->keep_alive();
  http_1_0_ = reader_->http_1_0();
  head_sent_ = chunked_ = exchange_done_ = false;
  Request request = reader_->take();
  reader_.reset();
  request.remote = remote_;
  head_request_ = request.method == "HEAD";
  try {
    exchange_ = server_->handler(std::move(request));
  } catch (const std::exception&) {  // a bug in a handler costs one request, not the server
    exchange_.reset();
  }
  if (!exchange_) return reply_and_close(500, "the request could not be handled");
  exchange_->start(make_waker());
  pump();
}

// The waker may outlive connection and server: it holds both weakly, and a wake that is under way is not posted twice.
std::function<void()> Connection::make_waker() {
  wake_posted_ = std::make_shared<std::atomic<bool>>(false);
  return [weak = weak_from_this(), posted = wake_posted_] {
    if (posted->exchange(true, std::memory_order_acq_rel)) return;
    const auto self = weak.lock();
    if (!self) return;
    asio::post(self->socket_.get_executor(), [weak, posted] {
      posted->store(false, std::memory_order_release);  // before the poll, so that later news wakes again
      if (const auto self = weak.lock()) self->pump();
    });
  };
}

// Takes the exchange's news and writes it. Never polls while a write is under way, so at most one poll is buffered here.
void Connection::pump() {
  if (!exchange_ || writing_ || polling_ || exchange_done_ || phase_ != Phase::kAnswering) return;
  polling_ = true;
  Poll news = exchange_->poll();
  polling_ = false;
  if (news.broken) return close();
  if (news.head) {
    append_head(*news.head, news.body.size(), news.done);
    head_sent_ = true;
    if (head_request_ && !news.done) {  // nothing more will be sent, so nothing more need be made
      drop_exchange();
      exchange_done_ = true;
    }
  }
  if (news.done) exchange_done_ = true;
  if (head_sent_) append_body(news.body, news.done);
  if (!next_.empty()) return write_more();
  if (exchange_done_) on_written();
}

void Connection::append_head(const Head& head, size_t body_bytes, bool done) {
  if (server_->draining.load(std::memory_order_relaxed)) keep_alive_ = false;
  const bool until_close = head.streaming && http_1_0_;
  if (until_close) keep_alive_ = false;
  chunked_ = head.streaming && !http_1_0_;
  next_ += "HTTP/1.1 " + std::to_string(head.status) + " " + reason_phrase(head.status) + "\r\n";
  append_header(next_, "Date", http_date());
  for (const auto& [name, value] : head.headers) append_header(next_, name, value);
  if (chunked_) append_header(next_, "Transfer-Encoding", "chunked");
  if (!head.streaming && head.status != 204 && head.status != 304)
    append_header(next_, "Content-Length", std::to_string(body_bytes));
  if (!keep_alive_) append_header(next_, "Connection", "close");
  else if (http_1_0_) append_header(next_, "Connection", "keep-alive");
  next_ += "\r\n";
}

void Connection::append_body(const std::string& body, bool done) {
  if (head_request_) return;
  if (!chunked_) {
    next_ += body;
    return;
  }
  if (!body.empty()) {
    append_hex(next_, body.size());
    next_.append(body).append("\r\n");
  }
  if (done) next_ += "0\r\n\r\n";
}

void Connection::write_more() {
  if (writing_ || phase_ == Phase::kClosed) return;
  if (out_sent_ == out_.size()) {
    out_.clear();
    out_.swap(next_);
    out_sent_ = 0;
  }
  writing_ = true;
  write_deadline_ = std::chrono::steady_clock::now() + server_->options.write_timeout;
  arm();
  socket_.async_write_some(asio::buffer(out_.data() + out_sent_, out_.size() - out_sent_),
                           [self = shared_from_this()](const error_code& ec, size_t n) {
                             self->writing_ = false;
                             self->on_write(ec, n);
                           });
}

void Connection::on_write(const error_code& ec, size_t n) {
  write_deadline_ = Time::max();
  if (phase_ == Phase::kClosed) return;
  if (ec) return close();
  out_sent_ += n;
  if (out_sent_ < out_.size() || !next_.empty()) return write_more();
  if (out_.capacity() > (256u << 10)) std::string().swap(out_);
  out_sent_ = out_.size();
  on_written();
}

// Everything buffered is out: more of this exchange, the next request, or the end.
void Connection::on_written() {
  if (linger_after_) return linger();
  if (phase_ != Phase::kAnswering) return;
  if (!exchange_done_) return pump();
  exchange_.reset();
  large_body_.reset();
  if (!keep_alive_) return linger();
  phase_ = Phase::kIdle;
  set_read_deadline(server_->options.idle_timeout);
  if (server_->draining.load()) return close();
  // Posted, so that a long pipeline neither recurses nor keeps the thread to itself.
  asio::post(socket_.get_executor(), [self = shared_from_this()] {
    if (self->phase_ != Phase::kIdle) return;
    if (!self->pending_.empty()) self->advance();
    self->read_more();
  });
}

void Connection::reply_and_close(int status, std::string_view message) {
  drop_exchange();
  const std::string body = error_body(status, message);
  Head head;
  head.status = status;
  head.headers = {{"Content-Type", "application/json"}};
  if (status == 503) head.headers.emplace_back("Retry-After", "1");
  keep_alive_ = false;
  linger_after_ = true;
  phase_ = Phase::kAnswering;
  read_deadline_ = Time::max();
  append_head(head, body.size(), true);
  if (!head_request_) next_ += body;
  pending_.clear();
  write_more();
  read_more();
}

// Says that nothing follows, then reads and forgets until the client closes too.
void Connection::linger() {
  if (phase_ == Phase::kClosed) return;
  phase_ = Phase::kLingering;
  error_code ec;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ec);
  set_read_deadline(kLinger);
  pending_.clear();
  read_more();
}

void Connection::close() {
  if (phase_ == Phase::kClosed) return;
  phase_ = Phase::kClosed;
  drop_exchange();
  error_code ec;
  timer_.cancel(ec);
  socket_.close(ec);
  server_->forget(this);
}

void Connection::drop_exchange() noexcept {
  large_body_.reset();
  if (!exchange_) return;
  if (!exchange_done_) exchange_->abandon();
  exchange_.reset();
}

void Connection::set_read_deadline(std::chrono::seconds after) {
  read_deadline_ = std::chrono::steady_clock::now() + after;
  arm();
}

// One lazy timer serves every deadline: it is moved only to become earlier, so a token stream does not touch it.
void Connection::arm() {
  const Time next = std::min(read_deadline_, write_deadline_);
  if (next == Time::max() || armed_ <= next) return;
  armed_ = next;
  timer_.expires_at(next);
  timer_.async_wait([weak = weak_from_this()](const error_code& ec) {
    if (ec) return;
    if (const auto self = weak.lock()) self->on_timer();
  });
}

void Connection::on_timer() {
  armed_ = Time::max();
  if (phase_ == Phase::kClosed) return;
  const Time now = std::chrono::steady_clock::now();
  if (now >= write_deadline_) return close();
  if (now >= read_deadline_) {
    if (phase_ == Phase::kReading && !writing_) return reply_and_close(408, "the request took too long to arrive");
    return close();
  }
  arm();
}

}  // namespace sluice::http
