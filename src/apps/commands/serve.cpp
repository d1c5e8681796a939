// sluice serve: the OpenAI API over a model. SIGTERM (or Ctrl-C) drains, a second one stops. After a device's fault it ends by
// itself, with exit status 3, once clients have had their errors: for a supervisor to start it again. It listens at once, and
// answers 503 until the model is loaded.
#include <algorithm>
#include <atomic>
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
#include "lab/pools.h"
#include "lab/step_cost_file.h"

namespace sluice::apps {
namespace {

// A pool and its engine.
struct Running {
  lab::LoadedPool pool;
  std::unique_ptr<engine::Engine> engine;
};

class Serve final : public Invocation {
 public:
  void declare(Flags& f) override {
    declare_model(f, load_);
    declare_speculation(f, speculate_);
    f.add("--host", host_, "address to listen on");
    f.add("--port", port_, "port (0: any free one)");
    f.add("--name", name_, "the model's name in the API (default: the file's)");
    f.add("--pool", pool_texts_, "an engine of its own over the same weights, NAME[:KEY=VALUE,...], several times: objective, kv, kv_type, max_sequences, step_ms, devices, threads, weight, class, speculate, alias");
    f.add("--max-queue", max_queue_, "requests that may wait in a pool; beyond, 429");
    f.add("--max-queue-tokens", max_queue_tokens_, "tokens of prompts that may wait in a pool (0: any number); beyond, 429");
    f.add("--queue-timeout", queue_timeout_s_, "seconds that a request may wait to be begun (0: for ever); then 429");
    f.add("--api-key", key_texts_, "keys that may use the API (none: open): KEY[,class=batch][,pool=NAME][,weight=W][,name=NAME]");
    f.add("--cors-origin", cors_, "value of Access-Control-Allow-Origin (empty: none)");
    f.add("--no-prefix-cache", no_prefix_cache_, "do not reuse the cache of common beginnings");
    f.add("--record", record_, "write every input of the scheduler to this file (with pools: to FILE.POOL), for sluice replay");
    f.add("--http-threads", http_threads_, "threads that talk to clients");
    f.add("--store", store_, "files and batch jobs: a SQLite file (default: jobs.db in $SLUICE_HOME), postgresql://... to share them, or none");
    f.add("--batch-concurrency", batch_concurrency_, "lines of batches in the engine at once");
    f.add("--json", json_, "one JSON line on standard output when ready");
    f.example("sluice serve smollm2.gguf --port 8080 --pool interactive:threads=1 --pool batch:threads=1");
  }

  Result<int> run(const Flags& flags) override {
    SLUICE_TRY(check_flags());
    SLUICE_TRY(lab::check_speculation(speculate_));
    SLUICE_ASSIGN(const auto specs, lab::parse_pools(pool_texts_));
    SLUICE_ASSIGN(const auto keys, read_keys(specs));
    // Signals are taken by this thread alone, in wait_for_signal; threads made from here on inherit the mask.
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
    const auto begin = std::chrono::steady_clock::now();

    std::atomic<api::Service*> ready{nullptr};
    SLUICE_ASSIGN(auto server, http::Server::listen(http_options(), [&](http::Request&& r) {
      api::Service* service = ready.load(std::memory_order_acquire);
      return service ? service->handle(std::move(r)) : api::loading_reply();
    }));
    server->start();

    load_.prefix_cache = !no_prefix_cache_;
    SLUICE_ASSIGN(auto loaded, lab::load_pools(load_, specs, speculate_, load_progress()));
    SLUICE_ASSIGN(std::vector<Running> pools, make_engines(std::move(loaded)));
    const lab::LoadedModel& model = pools.front().pool.model;
    if (!model.chat_template_error.empty()) std::fprintf(stderr, "chat template: %s (/v1/chat/completions will refuse)\n", model.chat_template_error.c_str());
    std::vector<api::Pool> faces;
    for (const Running& r : pools) faces.push_back({r.pool.spec.name, api::port_of(r.engine.get()), r.pool.spec.takes, r.pool.spec.aliases});
    api::Service service({keys, cors_, TimeUs(queue_timeout_s_ * 1e6)}, served_model(pools), std::move(faces));
    SLUICE_ASSIGN(auto store, open_jobs(flags.given("--store")));
    if (store) service.attach_store(std::move(store), {.concurrency = std::min(batch_concurrency_, std::max(1, max_queue_ / 2))});
    ready.store(&service, std::memory_order_release);
    announce(pools, *server, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    const int status = wait_for_signal(signals, pools, service, *server);
    server.reset();  // connections hold exchanges of the service, which goes first otherwise
    return status;
  }

 private:
  Status check_flags() const {
    if (port_ < 0 || port_ > 65535) return invalid(std::to_string(port_) + " is outside 0..65535", "--port");
    if (max_queue_ < 1 || max_queue_ > 1'000'000) return invalid(std::to_string(max_queue_) + " is outside 1..1000000", "--max-queue");
    if (max_queue_tokens_ < 0) return invalid(std::to_string(max_queue_tokens_) + " is below 0", "--max-queue-tokens");
    if (!(queue_timeout_s_ >= 0 && queue_timeout_s_ <= 86400)) return invalid("must be from 0 to 86400", "--queue-timeout");
    if (http_threads_ < 1 || http_threads_ > 64) return invalid(std::to_string(http_threads_) + " is outside 1..64", "--http-threads");
    if (batch_concurrency_ < 1 || batch_concurrency_ > 4096)
      return invalid(std::to_string(batch_concurrency_) + " is outside 1..4096", "--batch-concurrency");
    return {};
  }

  Result<std::vector<api::ApiKey>> read_keys(const std::vector<lab::PoolSpec>& pools) const {
    std::vector<api::ApiKey> out;
    for (const std::string& text : key_texts_) {
      SLUICE_ASSIGN(api::ApiKey key, api::parse_api_key(text));
      if (!key.pool.empty() && std::none_of(pools.begin(), pools.end(), [&](const lab::PoolSpec& p) { return p.name == key.pool; }))
        return invalid("there is no pool " + key.pool, "--api-key");
      out.push_back(std::move(key));
    }
    return out;
  }

  http::ServerOptions http_options() const {
    http::ServerOptions http;
    if (store_ != "none") http.body_limits = {{"/v1/files", size_t(store::Limits().file_bytes) + kFormBytes}};
    http.host = host_;
    http.port = uint16_t(port_);
    http.threads = http_threads_;
    return http;
  }

  Result<std::vector<Running>> make_engines(std::vector<lab::LoadedPool> loaded) const {
    std::vector<double> weights;
    for (const lab::LoadedPool& p : loaded)
      if (p.gate_member >= 0) weights.push_back(p.spec.weight);
    const auto gate = weights.size() > 1 ? std::make_shared<engine::StepGate>(weights) : nullptr;
    std::vector<Running> out;
    for (lab::LoadedPool& pool : loaded) {
      const std::string suffix = loaded.size() > 1 ? pool.spec.name : "";
      engine::EngineOptions options;
      const lab::SpeculateOptions speculate = lab::speculation_of(pool.spec, speculate_);
      SLUICE_TRY(lab::set_verification(speculate, pool.model));
      options.scheduler = pool.model.scheduler;
      options.max_queue = size_t(max_queue_);
      options.max_queue_tokens = max_queue_tokens_;
      if (!record_.empty()) {
        SLUICE_ASSIGN(options.recorder, engine::Recorder::open(suffix.empty() ? record_ : record_ + "." + suffix));
      }
      const std::string cost_path = lab::step_cost_path(pool.model, suffix);
      options.step_cost = lab::read_step_cost(cost_path);
      options.keep_step_cost = [cost_path, accelerator = !pool.model.model->kernels().host_memory](const std::vector<double>& state) { lab::write_step_cost(cost_path, state, accelerator); };
      if (gate && pool.gate_member >= 0) {
        options.gate = gate;
        options.gate_member = pool.gate_member;
        pool.model.device.depth = 1;
      }
      const lab::OnCores here(pool.cores);
      SLUICE_ASSIGN(options.speculator, lab::make_speculator(pool.model, pool.draft_model.get(), speculate, &clock_));
      SLUICE_ASSIGN(auto executor, pool.model.make_executor());
      SLUICE_TRY(executor->warm_up());
      auto engine = std::make_unique<engine::Engine>(options, pool.model.tokenizer, std::move(executor), &clock_);
      out.push_back({std::move(pool), std::move(engine)});
    }
    return out;
  }

  api::ServedModel served_model(const std::vector<Running>& pools) const {
    const lab::LoadedModel& model = pools.front().pool.model;
    api::ServedModel served;
    served.id = name_.empty() ? model.name : name_;
    served.created_s = int64_t(std::time(nullptr));
    for (const Running& r : pools) served.max_context = std::max(served.max_context, r.pool.model.memory.max_context);
    served.tokenizer = model.tokenizer;
    served.chat_template = model.chat_template;
    return served;
  }

  void announce(const std::vector<Running>& pools, const http::Server& server, double startup_s) const {
    const lab::LoadedModel& model = pools.front().pool.model;
    const std::string url = "http://" + host_ + ":" + std::to_string(server.port()), id = name_.empty() ? model.name : name_;
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    int64_t kv_tokens = 0;
    for (const Running& r : pools) {
      const int64_t tokens = r.engine->kv_tokens();
      kv_tokens += tokens;
      list.push_back({{"name", r.pool.spec.name}, {"kv_tokens", tokens}, {"threads", r.pool.model.device.threads}, {"shares_cores", r.pool.gate_member >= 0}});
      if (pools.size() > 1)
        std::fprintf(stderr, "pool %s: %ld tokens of cache, %d threads%s\n", r.pool.spec.name.c_str(), long(tokens), r.pool.model.device.threads, r.pool.gate_member >= 0 ? ", in turns" : "");
    }
    std::fprintf(stderr, "%s: %s kernels, %d threads, %ld tokens of cache, ready in %.2f s\nready %s\n", id.c_str(), model.model->kernels().name, model.device.threads, long(kv_tokens), startup_s, url.c_str());
    if (json_) std::cout << nlohmann::ordered_json{{"url", url}, {"pools", list}, {"model", id}, {"kv_tokens", kv_tokens}, {"startup_s", startup_s}}.dump() << std::endl;
  }

  // The store that was asked for, or the default one unless another server has it; null: none.
  Result<std::unique_ptr<store::JobStore>> open_jobs(bool asked) const {
    if (store_ == "none") return std::unique_ptr<store::JobStore>();
    auto store = store::open_store(asked ? store_ : lab::home_folder() + "/jobs.db");
    if (store.ok() || asked) return store;
    std::fprintf(stderr, "no files and batches here: %s\n", store.error().message.c_str());
    return std::unique_ptr<store::JobStore>();
  }
  static bool any_faulted(const std::vector<Running>& pools) {
    return std::any_of(pools.begin(), pools.end(), [](const Running& r) { return r.engine->faulted(); });
  }
  static int wait_for_signal(const sigset_t& signals, const std::vector<Running>& pools, api::Service& service, http::Server& server) {
    const timespec tick{0, 50'000'000};
    while (sigtimedwait(&signals, nullptr, &tick) <= 0)
      if (any_faulted(pools)) return leave_after_fault(service, server);
    std::fprintf(stderr, "draining: open requests go on, a second signal stops at once\n");
    service.drain();
    server.drain();
    int status = 0;
    for (int quiet = 0; quiet < 2;) {
      if (sigtimedwait(&signals, nullptr, &tick) > 0) {
        status = 130;
        break;
      }
      if (any_faulted(pools)) return leave_after_fault(service, server);
      const bool idle = std::all_of(pools.begin(), pools.end(), [](const Running& r) { return r.engine->idle(); });
      quiet = idle && server.open_connections() == 0 ? quiet + 1 : 0;
    }
    server.stop();
    return status;
  }
  // Streams have their error events and waiting requests their 503; slow readers get two seconds.
  static int leave_after_fault(api::Service& service, http::Server& server) {
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
  std::vector<std::string> key_texts_, pool_texts_;
  SteadyClock clock_;
  double queue_timeout_s_ = 0;
  int port_ = 8080, max_queue_ = 512, max_queue_tokens_ = 0, http_threads_ = 2, batch_concurrency_ = 64;
  bool json_ = false, no_prefix_cache_ = false;
};

}  // namespace

extern const Command command_serve{"serve", "the OpenAI API over a model", [] { return std::unique_ptr<Invocation>(new Serve); }};

}  // namespace sluice::apps
