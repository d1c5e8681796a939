// The whole edge: a socket, the server, the service, and an engine that talks from a thread of its own.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "http/client.h"
#include "http/server.h"
#include "tests/api/fakes.h"
#include "tests/http/raw_socket.h"

namespace sluice::api {
namespace {
using namespace test;
using namespace std::chrono_literals;

// Every submission gets a thread that sends tokens until it is cancelled or has sent max_tokens.
class ThreadedEngine final : public EnginePort {
 public:
  ~ThreadedEngine() override { join(); }
  void join() {
    for (auto& t : threads_) t.join();
    threads_.clear();
  }
  Status submit(sched::Submission s) override {
    std::lock_guard lock(mutex_);
    ++live;
    threads_.emplace_back([this, s = std::move(s)] {
      int i = 0;
      for (; i < s.max_tokens && !s.cancelled->load(); ++i) {
        s.sink->push(token(0, 'a', "a"));
        std::this_thread::sleep_for(1ms);
      }
      s.sink->push(end(0, i < s.max_tokens ? sched::FinishReason::kCancelled : sched::FinishReason::kLength));
      --live;
    });
    return {};
  }
  void poke() override { ++pokes; }
  const engine::Stats& stats() const override { return stats_; }
  bool healthy(std::string&) const override { return true; }
  void drain() override {}
  int64_t kv_tokens() const override { return 1 << 20; }
  int retry_after_s() const override { return 1; }
  std::atomic<int> live{0}, pokes{0};

 private:
  engine::Stats stats_;
  std::mutex mutex_;
  std::vector<std::thread> threads_;
};

class Edge : public ::testing::Test {
 protected:
  Edge() {
    ServedModel model;
    model.id = "tiny";
    model.max_context = 100'000;
    model.tokenizer = std::make_shared<FakeTokenizer>();
    service_ = std::make_unique<Service>(ServiceOptions{}, model, std::vector<Pool>{{.engine = engine_}});
    http::ServerOptions options;
    options.port = 0;
    auto made = http::Server::listen(options, [this](http::Request&& r) { return service_->handle(std::move(r)); });
    server_ = std::move(*made);
    server_->start();
  }
  ~Edge() override {
    server_->stop();
    engine_->join();
  }
  std::shared_ptr<ThreadedEngine> engine_ = std::make_shared<ThreadedEngine>();
  std::unique_ptr<Service> service_;
  std::unique_ptr<http::Server> server_;
};

TEST_F(Edge, StreamsConcurrently) {
  std::vector<std::thread> clients;
  std::atomic<int> whole{0};
  for (int i = 0; i < 16; ++i)
    clients.emplace_back([&] {
      http::Client c("127.0.0.1", server_->port());
      for (int round = 0; round < 2; ++round) {
        std::string text;
        bool done = false;
        http::SseSplitter sse([&](std::string_view data) {
          if (data == "[DONE]") done = true;
          else text += Json::parse(data)["choices"][0]["text"].get<std::string>();
        });
        auto r = c.post_json("/v1/completions", R"({"prompt":"x","stream":true,"max_tokens":20})", {},
                             [&](std::string_view b) { sse.push(b); return true; });
        if (r.ok() && done && text == std::string(20, 'a')) ++whole;
      }
    });
  for (auto& t : clients) t.join();
  EXPECT_EQ(whole, 32);
}

TEST_F(Edge, ADisconnectCancelsTheSubmission) {
  for (const char* stream : {"true", "false"}) {
    const std::string body = std::string(R"({"prompt":"x","max_tokens":90000,"stream":)") + stream + "}";
    std::vector<std::unique_ptr<http::test::RawSocket>> sockets;
    for (int i = 0; i < 20; ++i) {
      sockets.push_back(std::make_unique<http::test::RawSocket>(server_->port()));
      sockets.back()->send("POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
    }
    for (int i = 0; i < 1000 && engine_->live < 20; ++i) std::this_thread::sleep_for(5ms);
    ASSERT_EQ(engine_->live, 20);
    sockets.clear();
    for (int i = 0; i < 1000 && engine_->live > 0; ++i) std::this_thread::sleep_for(5ms);
    EXPECT_EQ(engine_->live, 0);
  }
  EXPECT_EQ(engine_->pokes, 40);
}

}  // namespace
}  // namespace sluice::api
