// sluice bench decode|prefill|mixed|throughput|speculate|serve|scheduler|kernels|machine: speed, beside what the machine was measured to give.
#include <chrono>
#include <cstdio>
#include <iostream>
#include <sstream>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "apps/bench_kernels.h"
#include "apps/bench_scheduler.h"
#include "apps/bench_speculate.h"
#include "apps/bench_throughput.h"
#include "apps/command.h"
#include "apps/load_report.h"
#include "apps/machine_json.h"
#include "apps/model_flags.h"
#include "lab/bench_mixed.h"
#include "lab/bench_step.h"
#include "lab/load_generator.h"

namespace sluice::apps {
namespace {

using Json = nlohmann::ordered_json;


class Bench final : public Invocation {
 public:
  void declare(Flags& f) override {
    load_.max_sequences = 0;
    load_.objective = "throughput";
    f.add("what", what_, "decode, prefill, mixed, throughput, speculate, serve, scheduler, kernels or machine", true);
    f.add("model", load_.model, "a .gguf file (decode, prefill) or the URL of a server (serve)");
    declare_random(f, load_);
    f.add("-o,--threads", load_.threads, "worker threads (0: every core)");
    f.add("--device", load_.device, "cpu, cuda or cuda:N");
    f.add("--deterministic", load_.deterministic, "results independent of the batch, where a backend does not give that anyway");
    f.add("--isa", load_.isa, "avx2, avxvnni, avx512, avx512bf16 or reference");
    f.add("--pin-threads", load_.pin_threads, "one core a worker");
    f.add("--kv-type", load_.kv_type, "what the cache keeps: f32, f16, bf16, fp8, int8, int4, KEYS/VALUES of these, or k8v4 and the like");
    f.add("--block-tokens", load_.block_tokens, "tokens a cache block (0: 16, or 64 where keys are int4)");
    f.add("--max-step-tokens", load_.max_step_tokens, "tokens a step (0: 512 on a host, 4096 on a device)");
    f.add("--max-sequences", load_.max_sequences, "throughput: sequences that run at once (0: every request, at most 1024)");
    f.add("--depth", load_.depth, "steps in flight, 1 or 2 (0: 2 on a device, 1 on a host)");
    f.add("--no-graphs", load_.no_graphs, "launch every kernel of a step by itself");
    f.add("--kv-memory", load_.kv_memory, "memory for the cache, such as 2GiB");
    f.add("--lengths", lengths_, "throughput: FILE or FILE:LIST, JSON with the lists \"prompt\" and \"output\" of lengths");
    f.add("-b,--batch", batches_, "batch sizes of decode and mixed, \"1,4,16\" (default 1; of mixed 8)");
    f.add("-c,--context", context_, "tokens cached before decoding, or of a prompt of prefill (default 128 and 512)");
    f.add("-n,--tokens", step_.tokens, "decode steps a repeat");
    f.add("--repeats", step_.repeats, "repeats");
    f.add("--trace", load_gen_.trace, "serve: CSV of arrivals and lengths");
    f.add("--prompt-tokens", load_gen_.prompt_tokens, "serve, throughput, mixed: a number or a distribution (default 128; of mixed 512)");
    f.add("--step-ms", load_.step_ms, "mixed: the bound on a step with prompts (0: what keeps gaps even)");
    f.add("--output-tokens", load_gen_.output_tokens, "serve, throughput: a number or a distribution");
    f.add("--rate", rate_, "serve: requests a second, or inf");
    f.add("--concurrency", load_gen_.concurrency, "serve: requests at once at most");
    f.add("--requests", load_gen_.requests, "serve, throughput: requests in all; mixed: prompts a repeat (default 4)");
    f.add("--slo", slo_, "serve: targets for goodput, \"ttft_ms=500,tpot_ms=30\"");
    f.add("--class", class_, "serve: interactive or batch");
    f.add("--api-key", load_gen_.api_key, "serve: the server's key");
    f.add("--seed", load_gen_.seed, "serve, throughput: of prompts and arrivals");
    f.add("--sequences", scheduler_.sequences, "scheduler: sequences that run at once");
    f.add("--steps", scheduler_.steps, "scheduler: steps that are timed");
    f.add("--check", check_, "kernels: hold every case against what is right instead of timing it");
    f.add("--filter", filter_, "kernels: only cases whose name holds this");
    f.add("--draft", speculate_.draft, "speculate: the draft model, random:SHAPE, or ngram");
    f.add("--oracle", speculate_.bench.oracle, "speculate: the draft model's passes run, but its guesses are right with this probability (0: its own guesses)");
    f.add("--data", speculate_.data, "speculate: prompts, a .txt or a .jsonl with \"prompt\"");
    f.add("-k,--drafts", speculate_.drafts, "speculate: numbers of drafts, \"1..8\" or \"1,3,5\"");
    f.add("--prompts", speculate_.bench.prompts, "speculate: of the prompts, the first so many (0: all)");
    f.add("--chat", speculate_.bench.chat, "speculate: apply the model's chat template to the prompts");
    f.add("--temperature", speculate_.bench.temperature, "speculate: 0 is greedy");
    f.add("--json", json_, "one JSON object on standard output");
    f.example("sluice bench decode smollm2.gguf -b 1,4,16 -c 512\n  sluice bench throughput --random llama-135m --requests 32 --prompt-tokens 128 --output-tokens 32\n  sluice bench serve http://127.0.0.1:8080 --requests 64 --concurrency 16");
  }

  Result<int> run(const Flags& flags) override {
    if (load_.threads < 0 || load_.threads > 256) return invalid(std::to_string(load_.threads) + " is outside 0..256", "--threads");
    if (what_ == "machine") return machine();
    if (what_ == "kernels") return bench_kernels({load_.device, load_.isa, filter_, threads(), step_.repeats, check_, json_});
    if (what_ == "scheduler") return bench_scheduler({scheduler_.sequences, scheduler_.steps, json_});
    if (what_ == "serve") return load_.model.empty() ? invalid("the URL of a server is missing", "model") : serve();
    if (what_ == "throughput") return bench_throughput({load_, load_gen_, lengths_, flags.given("--requests"), json_});
    if (what_ == "speculate") return speculate(flags);
    if (load_.max_sequences == 0) load_.max_sequences = 64;
    if (what_ == "decode" || what_ == "prefill") return steps();
    if (what_ == "mixed") return mixed(flags);
    return invalid("'" + what_ + "' is none of decode, prefill, mixed, throughput, speculate, serve, scheduler, kernels, machine", "what");
  }

 private:
  int threads() const { return load_.threads > 0 ? load_.threads : lab::default_threads(); }

  Result<int> speculate(const Flags& flags) {
    speculate_.load = load_;
    speculate_.load.max_sequences = 16;
    if (context_ > 0) speculate_.load.context = context_;
    if (flags.given("--tokens")) speculate_.bench.max_tokens = step_.tokens;
    speculate_.bench.seed = load_gen_.seed;
    speculate_.json = json_;
    return bench_speculate(speculate_);
  }

  Result<int> machine() {
    const lab::MachineCeilings m = lab::measure_machine(threads(), size_t{256} << 20);
    if (json_) {
      std::cout << Json{{"machine", machine_json(m)}, {"rows", Json::array()}}.dump() << "\n";
    } else {
      std::printf("%s, %d threads, others keep %.0f %% busy\nreads         %8.1f GB/s (%.1f by one thread)\nfloat32       %8.1f GFLOP/s\nint8          %8.1f GOP/s\n",
                  m.cpu.c_str(), m.threads, 100 * m.busy_fraction, m.read_gb_s, m.read_gb_s_one, m.f32_gflop_s, m.int8_gop_s);
    }
    return 0;
  }

  // What decode, prefill and mixed share: batches read, the model loaded, the machine measured.
  Result<lab::LoadedModel> prepare(lab::MachineCeilings& m) {
    step_.batches.clear();
    std::stringstream list(batches_);
    int largest = 1;
    for (std::string part; std::getline(list, part, ',');) {
      const int b = std::atoi(part.c_str());
      if (b < 1 || b > 1024) return invalid("'" + part + "' is outside 1..1024", "--batch");
      step_.batches.push_back(b);
      largest = std::max(largest, b);
    }
    step_.context = context_ > 0 ? context_ : what_ == "prefill" ? 512 : 128;
    if (step_.tokens < 1 || step_.repeats < 1) return invalid("must be at least 1", "--tokens, --repeats");
    load_.max_sequences = std::max(load_.max_sequences, largest);
    if (load_.max_step_tokens > 0) load_.max_step_tokens = std::max(load_.max_step_tokens, load_.max_sequences);
    SLUICE_ASSIGN(const kernels::KernelTable* table, lab::choose_kernels(load_));
    if (!table->host_memory) m = lab::measure_device(*table);  // before its memory is taken
    SLUICE_ASSIGN(lab::LoadedModel model, load_with_progress(load_));
    if (step_.context + step_.tokens > model.memory.max_context)
      return invalid(std::to_string(step_.context) + " plus --tokens is over the limit of " + std::to_string(model.memory.max_context), "--context");
    if (table->host_memory) m = lab::measure_machine(model.device.threads, size_t(model.memory.weights_bytes));
    if (m.busy_fraction > 0.1) std::fprintf(stderr, "others keep the machine %.0f %% busy: figures are low\n", 100 * m.busy_fraction);
    return model;
  }

  Result<int> mixed(const Flags& flags) {
    if (!flags.given("--batch")) batches_ = "8";
    lab::MachineCeilings m;
    SLUICE_ASSIGN(const lab::LoadedModel model, prepare(m));
    lab::MixedOptions o;
    o.batches = step_.batches;
    o.context = step_.context;
    if (flags.given("--prompt-tokens")) o.prompt_tokens = load_gen_.prompt_tokens;
    if (flags.given("--requests")) o.prompts = load_gen_.requests;
    if (o.prompts < 1 || o.prompts > 100000) return invalid(std::to_string(o.prompts) + " is outside 1..100000", "--requests");
    o.repeats = step_.repeats;
    o.step_ms = load_.step_ms;
    o.seed = load_gen_.seed;
    SLUICE_ASSIGN(const std::vector<lab::MixedRow> rows, lab::bench_mixed(model, o, m));
    Json list = Json::array();
    if (!json_) std::printf("%-10s %6s %8s %12s %21s %12s %9s %9s %9s %9s\n", "prompts", "batch", "context", "decode tok/s", "min..max", "prompt tok/s", "step p50", "step p99", "gap p50", "gap p99");
    for (const lab::MixedRow& r : rows) {
      Json j = row_json(r);
      j.update({{"chunks", r.chunks}, {"prompt_tok_s", r.prompt_tok_s}, {"prompts", r.prompts}, {"step_p99_ms", r.step_p99_ms}, {"gap_p50_ms", r.gap_p50_ms}, {"gap_p99_ms", r.gap_p99_ms}});
      list.push_back(std::move(j));
      if (!json_)
        std::printf("%-10s %6d %8d %12.1f %10.1f..%-9.1f %12.1f %9.3f %9.3f %9.3f %9.3f\n", r.chunks.c_str(), r.batch, r.context, r.tok_s, r.tok_s_min, r.tok_s_max, r.prompt_tok_s,
                    r.step_ms, r.step_p99_ms, r.gap_p50_ms, r.gap_p99_ms);
    }
    if (json_) std::cout << Json{{"rows", list}, {"machine", machine_json(m)}}.dump() << "\n";
    return 0;
  }

  Result<int> steps() {
    lab::MachineCeilings m;
    SLUICE_ASSIGN(const lab::LoadedModel model, prepare(m));
    SLUICE_ASSIGN(const auto rows, what_ == "decode" ? lab::bench_decode(model, step_, m) : lab::bench_prefill(model, step_, m));
    print_rows(rows, m);
    return 0;
  }

  static Json row_json(const lab::BenchRow& r) {
    return {{"name", r.name}, {"batch", r.batch}, {"context", r.context}, {"tok_s", r.tok_s}, {"tok_s_min", r.tok_s_min}, {"tok_s_max", r.tok_s_max}, {"step_ms", r.step_ms},
            {"gb_s", r.gb_s}, {"gflop_s", r.gflop_s}, {"pct_of_bandwidth", r.pct_of_bandwidth}, {"pct_of_compute", r.pct_of_compute}};
  }

  void print_rows(const std::vector<lab::BenchRow>& rows, const lab::MachineCeilings& m) {
    if (json_) {
      Json list = Json::array();
      for (const lab::BenchRow& r : rows) list.push_back(row_json(r));
      std::cout << Json{{"rows", list}, {"machine", machine_json(m)}}.dump() << "\n";
      return;
    }
    if (m.bf16_gflop_s > 0) std::printf("%s: copies %.0f GB/s, bf16 %.0f TFLOP/s\n", m.cpu.c_str(), m.read_gb_s, m.bf16_gflop_s * 1e-3);
    else std::printf("%s: reads %.1f GB/s, int8 %.0f GOP/s with %d threads\n", m.cpu.c_str(), m.read_gb_s, m.int8_gop_s, m.threads);
    std::printf("%-8s %6s %8s %10s %19s %10s %8s %6s %9s %6s\n", "", "batch", "context", "tokens/s", "min..max", "ms", "GB/s", "%", "GFLOP/s", "%");
    for (const lab::BenchRow& r : rows)
      std::printf("%-8s %6d %8d %10.1f %9.1f..%-9.1f %9.3f %8.1f %6.1f %9.1f %6.1f\n", r.name.c_str(), r.batch, r.context, r.tok_s, r.tok_s_min, r.tok_s_max, r.step_ms, r.gb_s, r.pct_of_bandwidth, r.gflop_s, r.pct_of_compute);
  }

  Result<int> serve() {
    load_gen_.url = load_.model;
    SLUICE_TRY(lab::parse_slo(slo_, load_gen_.slo_ttft_ms, load_gen_.slo_tpot_ms));
    if (rate_ != "inf") {
      load_gen_.rate = std::atof(rate_.c_str());
      if (!(load_gen_.rate > 0)) return invalid("'" + rate_ + "' is no rate above 0", "--rate");
    }
    if (class_ == "batch") load_gen_.service_tier = "flex";
    else if (class_ != "interactive") return invalid("'" + class_ + "' is neither interactive nor batch", "--class");
    const bool shows = ::isatty(STDERR_FILENO);
    SLUICE_ASSIGN(lab::LoadReport r, lab::generate_load(load_gen_, [&](int done, int total) {
      if (shows) std::fprintf(stderr, "\r%d of %d requests", done, total);
    }));
    if (shows) std::fprintf(stderr, "\r\033[K");
    if (json_) {
      std::cout << load_report_json(r).dump() << "\n";
    } else {
      std::printf("%d requests in %.2f s: %d answered, %d refused, %d failed\n%.1f output tokens/s, %.1f tokens/s in all, %.2f good requests/s\n", r.requests, r.duration_s, r.ok, r.rejected, r.failed, r.output_tok_s, r.total_tok_s, r.goodput_rps);
      print_percentiles(r);
      if (!r.first_error.empty()) std::printf("first error: %s\n", r.first_error.c_str());
    }
    return r.failed ? 1 : 0;
  }

  std::string what_, batches_ = "1", lengths_, rate_ = "inf", slo_, class_ = "interactive", filter_;
  lab::LoadOptions load_;
  SpeculateFlags speculate_;
  lab::BenchOptions step_;
  lab::GeneratorOptions load_gen_;
  SchedulerFlags scheduler_;
  int context_ = 0;
  bool json_ = false, check_ = false;
};

}  // namespace

extern const Command command_bench{"bench", "speed of steps, of a server, of the machine", [] { return std::unique_ptr<Invocation>(new Bench); }};

}  // namespace sluice::apps
