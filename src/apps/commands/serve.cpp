// sluice serve: the OpenAI API over a model. SIGTERM (or Ctrl-C) drains, a second one stops.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <iostream>
#include <thread>

#include <nlohmann/json.hpp>

#include "api/service.h"
#include "apps/command.h"
#include "apps/model_flags.h"
#include "engine/engine.h"
#include "http/server.h"

namespace sluice::apps {
namespace {

class Serve final : public Invocation {
 public:
  void declare(Flags& f) override {
    declare_model(f, load_);
    f.add("--host", host_, "address to listen on");
    f.add("--port", port_, "port (0: any free one)");
    f.add("--name", name_, "the model's name in the API (default: the file's)");
    f.add("--max-queue", max_queue_, "requests that may wait; beyond, 429");
    f.add("--api-key", api_keys_, "keys that may use the API (none: open)");
    f.add("--cors-origin", cors_, "value of Access-Control-Allow-Origin (empty: none)");
    f.add("--no-prefix-cache", no_prefix_cache_, "do not reuse the cache of common beginnings");
    f.add("--http-threads", http_threads_, "threads that talk to clients");
    f.add("--store", store_, "files and batch jobs: a SQLite file (default: jobs.db in $SLUICE_HOME), postgresql://... to share them, or none");
    f.add("--batch-concurrency", batch_concurrency_, "lines of batches in the engine at once");
    f.add("--json", json_, "one JSON line on standard output when ready");
    f.example("sluice serve smollm2.gguf --port 8080");
  }

  Result<int> run(const Flags& flags) override {
    if (port_ < 0 || port_ > 65535) return invalid(std::to_string(port_) + " is outside 0..65535", "--port");
    if (max_queue_ < 1 || max_queue_ > 1'000'000) return invalid(std::to_string(max_queue_) + " is outside 1..1000000", "--max-queue");
    if (http_threads_ < 1 || http_threads_ > 64) return invalid(std::to_string(http_threads_) + " is outside 1..64", "--http-threads");
    if (batch_concurrency_ < 1 || batch_concurrency_ > 4096)
      return invalid(std::to_string(batch_concurrency_) + " is outside 1..4096", "--batch-concurrency");
    // Signals are taken by this thread alone, in wait_for_signal; threads made from here on inherit the mask.
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    const auto begin = std::chrono::steady_clock::now();

    load_.prefix_cache = !no_prefix_cache_;
    SLUICE_ASSIGN(lab::LoadedModel model, load_with_progress(load_));
    SteadyClock clock;
    engine::EngineOptions options;
    options.scheduler = model.scheduler;
    options.max_queue = size_t(max_queue_);
    SLUICE_ASSIGN(auto executor, model.make_executor());
    engine::Engine engine(options, model.tokenizer, std::move(executor), &clock);
    api::ServedModel served;
    served.id = name_.empty() ? model.name : name_;
    served.created_s = int64_t(std::time(nullptr));
    served.max_context = model.memory.max_context;
    served.tokenizer = model.tokenizer;
    served.chat_template = model.chat_template;
    if (!model.chat_template_error.empty()) std::fprintf(stderr, "chat template: %s (/v1/chat/completions will refuse)\n", model.chat_template_error.c_str());
    api::Service service({api_keys_, cors_}, served, &engine);
    http::ServerOptions http;
    SLUICE_ASSIGN(auto store, open_jobs(flags.given("--store")));
    if (store) {
      http.body_limits = {{"/v1/files", size_t(store::Limits().file_bytes) + kFormBytes}};
      service.attach_store(std::move(store), {.concurrency = std::min(batch_concurrency_, std::max(1, max_queue_ / 2))});
    }
    http.host = host_;
    http.port = uint16_t(port_);
    http.threads = http_threads_;
    SLUICE_ASSIGN(auto server, http::Server::listen(http, [&](http::Request&& r) { return service.handle(std::move(r)); }));
    server->start();

    const std::string url = "http://" + host_ + ":" + std::to_string(server->port());
    const double startup_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    std::fprintf(stderr, "%s: %s kernels, %d threads, %ld tokens of cache, ready in %.2f s\nready %s\n", served.id.c_str(), model.model->kernels().name, model.device.threads, long(engine.kv_tokens()), startup_s, url.c_str());
    if (json_) {
      std::cout << nlohmann::ordered_json{{"url", url}, {"pools", {{{"name", "default"}, {"kv_tokens", engine.kv_tokens()}, {"threads", model.device.threads}}}},
                                          {"model", served.id}, {"kv_tokens", engine.kv_tokens()}, {"startup_s", startup_s}}.dump() << std::endl;
    }
    return wait_for_signal(signals, engine, service, *server);
  }

 private:
  // The store that was asked for, or the default one unless another server has it; null: none.
  Result<std::unique_ptr<store::JobStore>> open_jobs(bool asked) const {
    if (store_ == "none") return std::unique_ptr<store::JobStore>();
    auto store = store::open_store(asked ? store_ : store_folder() + "/jobs.db");
    if (store.ok() || asked) return store;
    std::fprintf(stderr, "no files and batches here: %s\n", store.error().message.c_str());
    return std::unique_ptr<store::JobStore>();
  }
  static std::string store_folder() {
    if (const char* home = std::getenv("SLUICE_HOME"); home && *home) return home;
    const char* home = std::getenv("HOME");
    return std::string(home && *home ? home : ".") + "/.cache/sluice";
  }
  static int wait_for_signal(const sigset_t& signals, engine::Engine& engine, api::Service& service, http::Server& server) {
    int signal = 0;
    sigwait(&signals, &signal);
    std::fprintf(stderr, "draining: open requests go on, a second signal stops at once\n");
    service.drain();
    engine.drain();
    server.drain();
    const timespec tick{0, 50'000'000};
    int status = 0;
    for (int quiet = 0; quiet < 2;) {
      if (sigtimedwait(&signals, nullptr, &tick) > 0) {
        status = 130;
        break;
      }
      quiet = engine.idle() && server.open_connections() == 0 ? quiet + 1 : 0;
    }
    server.stop();
    return status;
  }

  static constexpr size_t kFormBytes = 64 << 10;   // of an upload beside the file
  lab::LoadOptions load_;
  std::string host_ = "127.0.0.1", name_, cors_ = "*", store_;
  std::vector<std::string> api_keys_;
  int port_ = 8080, max_queue_ = 512, http_threads_ = 2, batch_concurrency_ = 64;
  bool json_ = false, no_prefix_cache_ = false;
};

}  // namespace

extern const Command command_serve{"serve", "the OpenAI API over a model", [] { return std::unique_ptr<Invocation>(new Serve); }};

}  // namespace sluice::apps
