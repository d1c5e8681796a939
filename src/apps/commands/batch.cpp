// sluice batch: an OpenAI batch file offline. What OUTPUT holds is done: started again, it goes on where it was.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <deque>
#include <fstream>
#include <iostream>
#include <unordered_set>

#include <nlohmann/json.hpp>

#include "api/batch_input.h"
#include "api/line_runner.h"
#include "apps/batch_output.h"
#include "apps/command.h"
#include "apps/model_flags.h"
#include "engine/engine.h"

namespace sluice::apps {
namespace {

constexpr size_t kMaxLines = 10'000'000;
constexpr size_t kMaxQueue = 1'000'000;      // one line may hold many prompts
constexpr std::chrono::milliseconds kTick{500};

volatile std::sig_atomic_t g_stop = 0;

class Batch final : public Invocation {
 public:
  void declare(Flags& f) override {
    f.add("input", input_, "the requests: a line of JSON each, with custom_id, method, url and body");
    f.add("output", output_, "the results, a line each; what is there already is not run again");
    declare_model(f, load_);
    f.add("--name", name_, "the model's name in requests and results (default: the file's)");
    f.add("--batch-concurrency", concurrency_, "requests in the engine at once (0: as many as sequences)");
    f.add("--json", json_, "one JSON object on standard output");
    f.example("sluice batch requests.jsonl results.jsonl smollm2.gguf");
  }

  Result<int> run(const Flags&) override {
    if (input_.empty() || output_.empty()) return invalid("INPUT.jsonl, OUTPUT.jsonl and MODEL are required (see --help)");
    if (concurrency_ < 0 || concurrency_ > 4096) return invalid(std::to_string(concurrency_) + " is outside 0..4096", "--batch-concurrency");
    if (!std::ifstream(input_)) return Error{ErrorCode::kNotFound, input_ + ": cannot be read", "input"};
    SLUICE_ASSIGN(lab::LoadedModel model, load_with_progress(load_));
    api::ServedModel served;
    served.id = name_.empty() ? model.name : name_;
    served.max_context = model.memory.max_context;
    served.tokenizer = model.tokenizer;
    served.chat_template = model.chat_template;
    SLUICE_ASSIGN(std::deque<store::Line> todo, read_input(served));
    SLUICE_ASSIGN(BatchOutput output, BatchOutput::open(output_));
    SLUICE_TRY(leave_out_done(todo, output));
    std::signal(SIGINT, [](int) { g_stop = 1; });
    std::signal(SIGTERM, [](int) { g_stop = 1; });

    SteadyClock clock;
    engine::EngineOptions options;
    options.scheduler = model.scheduler;
    options.max_queue = kMaxQueue;
    SLUICE_ASSIGN(auto executor, model.make_executor());
    engine::Engine engine(options, model.tokenizer, std::move(executor), &clock);
    api::LineRunner runner(api::make_context({}, served, {{.engine = api::port_of(&engine)}}), concurrency_ ? concurrency_ : load_.max_sequences);
    const auto begin = std::chrono::steady_clock::now();
    SLUICE_TRY(work(todo, runner, output));
    SLUICE_TRY(output.flush());
    print(output, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    return g_stop ? 130 : 0;
  }

 private:
  Result<std::deque<store::Line>> read_input(const api::ServedModel& served) {
    api::BatchInput input({}, served, kMaxLines);
    std::ifstream in(input_, std::ios::binary);
    std::string piece(1 << 20, '\0');
    while (in.read(piece.data(), std::streamsize(piece.size())) || in.gcount() > 0) input.add(std::string_view(piece).substr(0, size_t(in.gcount())));
    input.end();
    if (!input.problems().empty()) {
      const auto& p = input.problems()[0];
      return invalid(input_ + (p.line > 0 ? ": line " + std::to_string(p.line) : "") + ": " + p.message, "input");
    }
    requests_ = input.lines().size();
    return std::deque<store::Line>(std::make_move_iterator(input.lines().begin()), std::make_move_iterator(input.lines().end()));
  }

  Status leave_out_done(std::deque<store::Line>& todo, const BatchOutput& output) {
    const size_t before = todo.size();
    std::erase_if(todo, [&](const store::Line& line) { return output.done().contains(line.custom_id); });
    if (before - todo.size() != output.done().size())
      return invalid(output_ + " holds results of requests that are not in " + input_ + ": remove it or name another", "output");
    if (!output.done().empty()) std::fprintf(stderr, "%zu of %zu requests are done already\n", output.done().size(), before);
    return {};
  }

  Status work(std::deque<store::Line>& todo, api::LineRunner& runner, BatchOutput& output) {
    while (!g_stop && (!todo.empty() || !runner.idle())) {
      for (; runner.room() > 0 && !todo.empty(); todo.pop_front()) runner.start(std::move(todo.front()));
      for (api::LineDone& done : runner.wait(kTick)) {
        if (done.refused) return Error{ErrorCode::kUnavailable, "the engine takes no more requests: start again to go on", {}};
        SLUICE_TRY(output.append(done.line.custom_id, done.result.ok, done.result.text));
        tokens_ += done.result.completion_tokens;
      }
    }
    return {};
  }

  void print(const BatchOutput& output, double seconds) const {
    const double rate = seconds > 0 ? double(tokens_) / seconds : 0;
    std::fprintf(stderr, "%zu requests: %ld ok, %ld failed; %.1f output tokens/s\n", requests_, long(output.ok()), long(output.failed()), rate);
    if (json_)
      std::cout << nlohmann::ordered_json{{"requests", requests_}, {"ok", output.ok()}, {"failed", output.failed()}, {"output_tok_s", rate}}.dump() << "\n";
  }

  lab::LoadOptions load_;
  std::string input_, output_, name_;
  int concurrency_ = 0;
  bool json_ = false;
  size_t requests_ = 0;
  int64_t tokens_ = 0;
};

}  // namespace

extern const Command command_batch{"batch", "an OpenAI batch file offline, resumable", [] { return std::unique_ptr<Invocation>(new Batch); }};

}  // namespace sluice::apps
