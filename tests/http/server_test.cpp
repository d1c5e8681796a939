#include "http/server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "http/client.h"
#include "tests/http/raw_socket.h"

namespace sluice::http {
namespace {
using namespace std::chrono_literals;
using test::RawSocket;

struct Counts {
  std::atomic<int> handled{0}, abandoned{0}, gone{0};
};

// Streams `pieces` pieces from a thread of its own, then ends; pieces < 0 never says anything.
class Stream final : public Exchange {
 public:
  Stream(Counts* counts, int pieces, size_t piece_bytes, bool endless)
      : counts_(counts), pieces_(pieces), piece_bytes_(piece_bytes), endless_(endless) {}
  ~Stream() override {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    ++counts_->gone;
  }
  void start(std::function<void()> wake) override {
    if (pieces_ < 0) return;
    thread_ = std::thread([this, wake] {
      for (int i = 0; (endless_ || i <= pieces_) && !stop_; ++i) {
        ++ready_;
        wake();
        std::this_thread::sleep_for(1ms);
      }
    });
  }
  Poll poll() override {
    Poll out;
    for (int n = 0; n < 4 && said_ < ready_.load() && (endless_ || said_ <= pieces_); ++n, ++said_) {
      if (said_ == 0) out.head = Head{200, {{"Content-Type", "text/event-stream"}}, true};
      if (!endless_ && said_ == pieces_) out.done = true;
      else out.body += "data: " + std::string(piece_bytes_, 'x') + "\n\n";
    }
    return out;
  }
  void abandon() noexcept override { ++counts_->abandoned; }

 private:
  Counts* counts_;
  int pieces_;
  size_t piece_bytes_;
  bool endless_;
  std::atomic<int> ready_{0};
  std::atomic<bool> stop_{false};
  int said_ = 0;
  std::thread thread_;
};

std::unique_ptr<Exchange> answer(Counts& counts, Request&& r) {
  ++counts.handled;
  if (r.path == "/stream") return std::make_unique<Stream>(&counts, 5, 3, false);
  if (r.path == "/flood") return std::make_unique<Stream>(&counts, 0, 256 << 10, true);
  if (r.path == "/never") return std::make_unique<Stream>(&counts, -1, 0, false);
  if (r.path == "/throw") throw std::runtime_error("a bug");
  return immediate(200, {{"Content-Type", "text/plain"}},
                   r.method + " " + r.path + "?" + r.query + " " + std::to_string(r.body.size()) + " " + r.body.substr(0, 64));
}

class HttpServer : public ::testing::Test {
 protected:
  void serve(ServerOptions options = {}) {
    options.port = 0;
    auto made = Server::listen(options, [this](Request&& r) { return answer(counts_, std::move(r)); });
    ASSERT_TRUE(made.ok()) << made.error().message;
    server_ = std::move(*made);
    server_->start();
  }
  Client client() { return Client("127.0.0.1", server_->port()); }
  bool eventually(const std::function<bool()>& f, int ms = 5000) {
    for (int i = 0; i < ms / 5; ++i) {
      if (f()) return true;
      std::this_thread::sleep_for(5ms);
    }
    return false;
  }
  Counts counts_;
  std::unique_ptr<Server> server_;
};

TEST_F(HttpServer, AnswersAndKeepsAlive) {
  serve();
  auto c = client();
  for (int i = 0; i < 3; ++i) {
    auto r = c.post_json("/a%20b?q=1", "hello");
    ASSERT_TRUE(r.ok()) << r.error().message;
    EXPECT_EQ(r->status, 200);
    EXPECT_EQ(r->body, "POST /a b?q=1 5 hello");
  }
  EXPECT_EQ(server_->open_connections(), 1);
}

TEST_F(HttpServer, StreamsInChunks) {
  serve();
  auto c = client();
  int events = 0;
  SseSplitter sse([&](std::string_view data) { events += data == "xxx"; });
  auto r = c.request("GET", "/stream", {}, {}, [&](std::string_view b) { sse.push(b); return true; });
  ASSERT_TRUE(r.ok()) << r.error().message;
  EXPECT_EQ(r->header("transfer-encoding"), "chunked");
  EXPECT_EQ(events, 5);
  EXPECT_TRUE(c.get("/next").ok());
}

TEST_F(HttpServer, Http10StreamEndsByClosing) {
  serve();
  RawSocket s(server_->port());
  s.send("GET /stream HTTP/1.0\r\n\r\n");
  const std::string got = s.read_all();
  EXPECT_TRUE(s.closed());
  EXPECT_EQ(got.find("Transfer-Encoding"), got.npos);
  EXPECT_NE(got.find("data: xxx"), got.npos);
  RawSocket k(server_->port());
  k.send("GET /x HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
  EXPECT_NE(k.read_until("GET /x").find("Connection: keep-alive"), std::string::npos);
}

TEST_F(HttpServer, HeadHasNoBody) {
  serve();
  RawSocket s(server_->port());
  s.send("HEAD /x HTTP/1.1\r\nHost: a\r\n\r\nGET /second HTTP/1.1\r\nHost: a\r\n\r\n");
  const std::string got = s.read_until("GET /second");
  EXPECT_NE(got.find("Content-Length: 11"), got.npos) << got;
  EXPECT_EQ(got.find("HEAD /x?"), got.npos);
}

TEST_F(HttpServer, PipelinedRequestsAreAnsweredInOrder) {
  serve();
  RawSocket s(server_->port());
  std::string all;
  for (int i = 0; i < 50; ++i) all += "POST /" + std::to_string(i) + " HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\nok";
  all += "GET /stream HTTP/1.1\r\nHost: a\r\n\r\nGET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
  s.send(all);
  const std::string got = s.read_all();
  size_t at = 0;
  for (int i = 0; i < 50; ++i) {
    at = got.find("POST /" + std::to_string(i) + "? 2 ok", at);
    ASSERT_NE(at, got.npos) << i;
  }
  EXPECT_NE(got.find("0\r\n\r\nHTTP/1.1 200", at), got.npos);
  EXPECT_NE(got.find("GET /last"), got.npos);
  EXPECT_TRUE(s.closed());
}

TEST_F(HttpServer, TakesChunkedBodies) {
  serve();
  RawSocket s(server_->port());
  s.send("POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe");
  std::this_thread::sleep_for(10ms);
  s.send("llo\r\n6;ext=1\r\n world\r\n0\r\n\r\n");
  EXPECT_NE(s.read_until("world").find("POST /c? 11 hello world"), std::string::npos);
}

TEST_F(HttpServer, SaysContinue) {
  serve();
  RawSocket s(server_->port());
  s.send("POST /e HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  EXPECT_EQ(s.read_until("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  s.send("ok");
  EXPECT_NE(s.read_until("ok").find("POST /e? 2 ok"), std::string::npos);
  RawSocket big(server_->port());
  big.send("POST /e HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 99999999999\r\n\r\n");
  EXPECT_EQ(big.read_until("\r\n\r\n").substr(0, 12), "HTTP/1.1 413");
}

TEST_F(HttpServer, RefusesBodiesOverTheLimit) {
  serve();
  auto c = client();
  auto r = c.post_json("/big", std::string(100'000'000, 'x'));
  ASSERT_TRUE(r.ok()) << r.error().message;
  EXPECT_EQ(r->status, 413);
  EXPECT_NE(r->body.find("33554432"), std::string::npos) << r->body;
  RawSocket s(server_->port());  // chunked: the size shows only as it comes
  s.send("POST /c HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string piece = "100000\r\n" + std::string(1 << 20, 'y') + "\r\n";
  for (int i = 0; i < 40; ++i)
    if (!s.send(piece)) break;
  EXPECT_EQ(s.read_until("}}").substr(0, 12), "HTTP/1.1 413");
  EXPECT_EQ(counts_.handled, 0);
}

TEST_F(HttpServer, TakesABodyJustBelowTheLimit) {
  serve();
  auto c = client();
  auto r = c.post_json("/big", std::string(32 << 20, 'x'));
  ASSERT_TRUE(r.ok()) << r.error().message;
  EXPECT_EQ(r->status, 200);
}

TEST_F(HttpServer, APathMayHaveALargerLimit) {
  ServerOptions o;
  o.max_body_bytes = 1000;
  o.body_limits = {{"/large", 5000}};
  o.max_large_bodies = 1;
  serve(o);
  auto c = client();
  EXPECT_EQ(c.post_json("/other", std::string(1001, 'x'))->status, 413);
  EXPECT_EQ(c.post_json("/large?q", std::string(5000, 'x'))->status, 200);
  EXPECT_EQ(c.post_json("/large", std::string(5001, 'x'))->status, 413);
  RawSocket chunked(server_->port());
  chunked.send("POST /large HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1389\r\n" + std::string(5001, 'x') + "\r\n0\r\n\r\n");
  EXPECT_EQ(chunked.read_until("}}").substr(0, 12), "HTTP/1.1 413");
  RawSocket first(server_->port()), second(server_->port());
  first.send("POST /large HTTP/1.1\r\nHost: a\r\nContent-Length: 2000\r\n\r\n");
  std::this_thread::sleep_for(100ms);
  second.send("POST /large HTTP/1.1\r\nHost: a\r\nContent-Length: 2000\r\n\r\n");
  EXPECT_EQ(second.read_until("}}").substr(0, 12), "HTTP/1.1 503");
  auto other = client();
  EXPECT_EQ(other.post_json("/large", std::string(1000, 'x'))->status, 200);   // is not large
  first.send(std::string(2000, 'x'));
  EXPECT_EQ(first.read_until("xxx").substr(0, 12), "HTTP/1.1 200");
  EXPECT_TRUE(eventually([&] { return other.post_json("/large", std::string(1001, 'x'))->status == 200; }));
}

TEST_F(HttpServer, WhatBreaksIsNotTakenForWhole) {
  struct Broken final : Exchange {
    void start(std::function<void()>) override {}
    Poll poll() override {
      if (said_) return {{}, {}, true, true};
      said_ = true;
      return {Head{200, {}, true}, "begun", false};
    }
    void abandon() noexcept override {}
    bool said_ = false;
  };
  auto made = Server::listen({.port = 0}, [](Request&&) { return std::make_unique<Broken>(); });
  (*made)->start();
  EXPECT_FALSE(Client("127.0.0.1", (*made)->port()).get("/").ok());
}

TEST_F(HttpServer, RefusesHeadsOverTheLimit) {
  serve();
  RawSocket s(server_->port());
  s.send("GET / HTTP/1.1\r\nHost: a\r\nX: " + std::string(40'000, 'h') + "\r\n\r\n");
  const std::string got = s.read_all();
  EXPECT_EQ(got.substr(0, 12), "HTTP/1.1 431");
  EXPECT_NE(got.find("{\"error\":{\"message\":\"the request head is larger"), got.npos);
}

TEST_F(HttpServer, MalformedHeadsGet400) {
  serve();
  for (const char* bad : {"NONSENSE\r\n\r\n", "GET / HTTP/9.9\r\nHost: a\r\n\r\n", "GET / HTTP/1.1\r\n\r\n",
                          "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "GET / HTTP/1.1\r\nHost: a\r\nbad header\r\n\r\n",
                          "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
                          "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
                          "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
                          "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n\r\n",
                          "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 tls hello\r\n\r\n"}) {
    RawSocket s(server_->port());
    s.send(bad);
    const std::string got = s.read_all(2000);
    EXPECT_EQ(got.substr(0, 12), "HTTP/1.1 400") << bad << " -> " << got;
    EXPECT_NE(got.find("\"type\":\"invalid_request_error\""), got.npos) << bad;
    EXPECT_TRUE(s.closed()) << bad;
  }
  EXPECT_EQ(counts_.handled, 0);
}

TEST_F(HttpServer, HandlerThatThrowsCostsOneRequest) {
  serve();
  auto c = client();
  auto r = c.get("/throw");
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(r->status, 500);
  EXPECT_TRUE(c.get("/fine").ok());
}

TEST_F(HttpServer, SlowWriterTimesOut) {
  ServerOptions o;
  o.read_timeout = 1s;
  serve(o);
  RawSocket head(server_->port()), body(server_->port());
  head.send("GET / HT");
  body.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n123");
  EXPECT_EQ(head.read_all().substr(0, 12), "HTTP/1.1 408");
  EXPECT_EQ(body.read_all().substr(0, 12), "HTTP/1.1 408");
}

TEST_F(HttpServer, DribbledHeadHasOneDeadline) {
  ServerOptions o;
  o.read_timeout = 1s;
  serve(o);
  RawSocket s(server_->port());
  const auto began = std::chrono::steady_clock::now();
  s.send("GET / HTTP/1.1\r\nX: ");
  std::string got;
  for (int i = 0; i < 40 && got.empty(); ++i) {
    s.send("y");
    got = s.read_until("\r\n", 100);
  }
  EXPECT_EQ(got.substr(0, 12), "HTTP/1.1 408");
  EXPECT_LT(std::chrono::steady_clock::now() - began, 3s);
}

TEST_F(HttpServer, IdleConnectionIsClosed) {
  ServerOptions o;
  o.idle_timeout = 1s;
  serve(o);
  RawSocket s(server_->port());
  EXPECT_EQ(s.read_all(4000), "");
  EXPECT_TRUE(s.closed());
}

TEST_F(HttpServer, SlowReaderIsAbandoned) {
  ServerOptions o;
  o.write_timeout = 1s;
  serve(o);
  RawSocket s(server_->port(), 4096);
  s.send("GET /flood HTTP/1.1\r\nHost: a\r\n\r\n");
  EXPECT_TRUE(eventually([&] { return counts_.abandoned == 1; }, 8000));
  EXPECT_TRUE(eventually([&] { return server_->open_connections() == 0; }));
}

TEST_F(HttpServer, ThreeHundredDisconnectsAreThreeHundredAbandons) {
  serve();
  std::vector<std::unique_ptr<RawSocket>> all;
  for (int i = 0; i < 300; ++i) {
    all.push_back(std::make_unique<RawSocket>(server_->port()));
    ASSERT_TRUE(all.back()->send("GET /never HTTP/1.1\r\nHost: a\r\n\r\n"));
  }
  ASSERT_TRUE(eventually([&] { return counts_.handled == 300; }));
  EXPECT_EQ(counts_.abandoned, 0);
  for (int i = 0; i < 300; ++i) i % 2 ? all[i]->close() : all[i]->half_close();
  EXPECT_TRUE(eventually([&] { return counts_.abandoned == 300 && counts_.gone == 300; })) << counts_.abandoned;
  EXPECT_TRUE(eventually([&] { return server_->open_connections() == 0; }));
}

TEST_F(HttpServer, DisconnectWhileStreaming) {
  serve();
  RawSocket s(server_->port());
  s.send("GET /flood HTTP/1.1\r\nHost: a\r\n\r\n");
  s.read_until("data: ");
  s.close();
  EXPECT_TRUE(eventually([&] { return counts_.abandoned == 1 && counts_.gone == 1; }));
}

TEST_F(HttpServer, ConnectionsBeyondTheLimitGet503) {
  ServerOptions o;
  o.max_connections = 2;
  serve(o);
  RawSocket a(server_->port()), b(server_->port());
  a.send("GET /never HTTP/1.1\r\nHost: a\r\n\r\n");
  b.send("GET /never HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(eventually([&] { return counts_.handled == 2; }));
  {
    RawSocket c(server_->port());
    EXPECT_EQ(c.read_until("}}").substr(0, 12), "HTTP/1.1 503");
  }
  a.close();
  EXPECT_TRUE(eventually([&] {
    auto cl = client();
    auto r = cl.get("/x");
    return r.ok() && r->status == 200;
  }));
}

TEST_F(HttpServer, DrainFinishesWhatIsOpen) {
  serve();
  auto idle = client();
  ASSERT_TRUE(idle.get("/x").ok());
  RawSocket s(server_->port());
  s.send("GET /stream HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(eventually([&] { return counts_.handled == 2; }));
  server_->drain();
  EXPECT_NE(s.read_all().find("0\r\n\r\n"), std::string::npos);
  EXPECT_TRUE(s.closed());
  EXPECT_TRUE(eventually([&] { return server_->open_connections() == 0; }));
  auto late = client();
  EXPECT_FALSE(late.get("/x").ok());
}

TEST_F(HttpServer, StopAbandonsWhatIsOpen) {
  serve();
  RawSocket s(server_->port());
  s.send("GET /never HTTP/1.1\r\nHost: a\r\n\r\n");
  ASSERT_TRUE(eventually([&] { return counts_.handled == 1; }));
  server_->stop();
  EXPECT_EQ(counts_.abandoned, 1);
  EXPECT_EQ(counts_.gone, 1);
}

TEST_F(HttpServer, WakeAfterTheServerIsGone) {
  std::function<void()> kept;
  struct Keeper final : Exchange {
    explicit Keeper(std::function<void()>* to) : to_(to) {}
    void start(std::function<void()> wake) override { *to_ = std::move(wake); }
    Poll poll() override { return {}; }
    void abandon() noexcept override {}
    std::function<void()>* to_;
  };
  auto made = Server::listen({.port = 0}, [&](Request&&) { return std::make_unique<Keeper>(&kept); });
  ASSERT_TRUE(made.ok());
  (*made)->start();
  RawSocket s((*made)->port());
  s.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
  std::this_thread::sleep_for(100ms);
  (*made)->stop();
  made = invalid("gone");
  ASSERT_TRUE(kept);
  kept();
  kept();
}

TEST(HttpListen, NamesTheAddressThatIsTaken) {
  auto first = Server::listen({.port = 0}, [](Request&&) { return immediate(200, {}, ""); });
  ASSERT_TRUE(first.ok());
  auto second = Server::listen({.port = (*first)->port()}, [](Request&&) { return immediate(200, {}, ""); });
  ASSERT_FALSE(second.ok());
  EXPECT_NE(second.error().message.find("127.0.0.1:" + std::to_string((*first)->port())), std::string::npos);
}

TEST(HttpUrl, Parses) {
  auto u = parse_url("http://host:81/a?b");
  ASSERT_TRUE(u.ok());
  EXPECT_EQ(u->host, "host");
  EXPECT_EQ(u->port, 81);
  EXPECT_EQ(u->path, "/a?b");
  EXPECT_EQ(parse_url("[::1]:5")->host, "::1");
  EXPECT_FALSE(parse_url("https://x").ok());
  EXPECT_FALSE(parse_url("x:99999").ok());
}

}  // namespace
}  // namespace sluice::http
