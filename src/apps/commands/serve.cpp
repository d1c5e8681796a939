// sluice serve: the OpenAI API over a model. SIGTERM (or Ctrl-C) drains, a second one stops. After a device's fault it ends by
// itself, with exit status 3, once clients have had their errors: for a supervisor to start it again.
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
#include "lab/step_cost_file.h"

namespace sluice::apps {
namespace {

class Serve final : public Invocation {
 public:
  void declare(Flags& f) override {
    declare_model(f, load_);
    declare_speculation(f, speculate_);
    f.add("--host", host_, "address to listen on");
    f.add("--port", port_, "port (0: any free one)");
    f.add("--name", name_, "the model's name in the API (default: the file's)");
    f.add("--max-queue", max_queue_, "requests that may wait; beyond, 429");
    f.add("--api-key", api_keys_, "keys that may use the API (none: open)");
    f.add("--cors-origin", cors_, "value of Access-Control-Allow-Origin (empty: none)");
    f.add("--no-prefix-cache", no_prefix_cache_, "do not reuse the cache of common beginnings");
    f.add("--record", record_, "write every input of the scheduler to this file, for sluice replay");
    f.add("--http-threads", http_threads_, "threads that talk to clients");
    f.add("--store", store_, "files and batch jobs: a SQLite file (default: jobs.db in $SLUICE_HOME), postgresql://... to share them, or none");
    f.add("--batch-concurrency", batch_concurrency_, "lines of batches in the engine at once");
    f.add("--json", json_, "one JSON line on standard output when ready");
    f.example("sluice serve smollm2.gguf --port 8080");
  }

  Result<int> run(const Flags& flags) override {
    SLUICE_TRY(check_flags());
    SLUICE_TRY(lab::check_speculation(speculate_));
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
    if (!record_.empty()) {
      SLUICE_ASSIGN(options.recorder, engine::Recorder::open(record_));
    }
    const std::string cost_path = lab::step_cost_path(model);
    options.step_cost = lab::read_step_cost(cost_path);
    options.keep_step_cost = [cost_path](const std::vector<double>& state) { lab::write_step_cost(cost_path, state); };
    SLUICE_ASSIGN(options.speculator, lab::load_speculator(model, load_, speculate_, &clock));
    SLUICE_ASSIGN(auto executor, model.make_executor());
    engine::Engine engine(options, model.tokenizer, std::move(executor), &clock);
    const api::ServedModel served = served_model(model);
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
  Status check_flags() const {
    if (port_ < 0 || port_ > 65535) return invalid(std::to_string(port_) + " is outside 0..65535", "--port");
    if (max_queue_ < 1 || max_queue_ > 1'000'000) return invalid(std::to_string(max_queue_) + " is outside 1..1000000", "--max-queue");
    if (http_threads_ < 1 || http_threads_ > 64) return invalid(std::to_string(http_threads_) + " is outside 1..64", "--http-threads");
    if (batch_concurrency_ < 1 || batch_concurrency_ > 4096)
      return invalid(std::to_string(batch_concurrency_) + " is outside 1..4096", "--batch-concurrency");
    return {};
  }
  api::ServedModel served_model(const lab::LoadedModel& model) const {
    api::ServedModel served;
    served.id = name_.empty() ? model.name : name_;
    served.created_s = int64_t(std::time(nullptr));
    served.max_context = model.memory.max_context;
    served.tokenizer = model.tokenizer;
    served.chat_template = model.chat_template;
    return served;
  }
  // The store that was asked for, or the default one unless another server has it; null: none.
  Result<std::unique_ptr<store::JobStore>> open_jobs(bool asked) const {
    if (store_ == "none") return std::unique_ptr<store::JobStore>();
    auto store = store::open_store(asked ? store_ : lab::home_folder() + "/jobs.db");
    if (store.ok() || asked) return store;
    std::fprintf(stderr, "no files and batches here: %s\n", store.error().message.c_str());
    return std::unique_ptr<store::JobStore>();
  }
  static int wait_for_signal(const sigset_t& signals, engine::Engine& engine, api::Service& service, http::Server& server) {
    const timespec tick{0, 50'000'000};
    while (sigtimedwait(&signals, nullptr, &tick) <= 0)
      if (engine.faulted()) return leave_after_fault(engine, service, server);
    std::fprintf(stderr, "draining: open requests go on, a second signal stops at once\n");
    service.drain();
    engine.drain();
    server.drain();
    int status = 0;
    for (int quiet = 0; quiet < 2;) {
      if (sigtimedwait(&signals, nullptr, &tick) > 0) {
        status = 130;
        break;
      }
      if (engine.faulted()) return leave_after_fault(engine, service, server);
      quiet = engine.idle() && server.open_connections() == 0 ? quiet + 1 : 0;
    }
    server.stop();
    return status;
  }
  // Streams have their error events and waiting requests their 503; slow readers get two seconds.
  static int leave_after_fault(engine::Engine& engine, api::Service& service, http::Server& server) {
    service.drain();
    server.drain();
    for (int i = 0; i < 40 && server.open_connections() > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(50));
    server.stop();
    return 3;
  }

  static constexpr size_t kFormBytes = 64 << 10;   // of an upload beside the file
  lab::LoadOptions load_;
  lab::SpeculateOptions speculate_;
  std::string host_ = "127.0.0.1", name_, cors_ = "*", store_, record_;
  std::vector<std::string> api_keys_;
  int port_ = 8080, max_queue_ = 512, http_threads_ = 2, batch_concurrency_ = 64;
  bool json_ = false, no_prefix_cache_ = false;
};

}  // namespace

extern const Command command_serve{"serve", "the OpenAI API over a model", [] { return std::unique_ptr<Invocation>(new Serve); }};

}  // namespace sluice::apps
