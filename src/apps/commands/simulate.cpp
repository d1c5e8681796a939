// sluice simulate: the real scheduler on a cost model, over a trace or drawn requests.
#include <cmath>
#include <cstdio>
#include <iostream>

#include <nlohmann/json.hpp>

#include "apps/command.h"
#include "apps/load_report.h"
#include "format/weight_file.h"
#include "lab/hardware.h"
#include "lab/loaded_model.h"
#include "lab/simulate.h"
#include "model/random_model.h"

namespace sluice::apps {
namespace {

using Json = nlohmann::ordered_json;

class Simulate final : public Invocation {
 public:
  void declare(Flags& f) override {
    f.add("model", model_, "a model whose sizes count; none: --model-shape");
    f.add("--model-shape", shape_, "a named shape: " + model::random_shapes());
    f.add("--weight-type", weight_type_, "of a shape's weights");
    f.add("--kv-type", kv_type_, "what the cache keeps: f32, f16, bf16, fp8, int8, int4, KEYS/VALUES of these, or k8v4 and the like");
    f.add("--hardware", hardware_, "h100, h200, cpu (measured now) or a JSON file, such as a server keeps");
    f.add("--trace", work_.trace, "CSV of arrivals and lengths; none: drawn");
    f.add("--rate", rate_, "of a trace: so many times its own speed; drawn: requests a second; inf: all at once");
    f.add("--divide-lengths", work_.divide_lengths, "of a trace: lengths are divided by this");
    f.add("--prompt-tokens", work_.prompt_tokens, "a number or a distribution");
    f.add("--output-tokens", work_.output_tokens, "a number or a distribution");
    f.add("--requests", work_.requests, "requests in all; of a trace at most (default: all of it)");
    f.add("--seed", work_.seed, "of lengths, arrivals and prompts");
    f.add("--policy", policy_, "continuous, static (finished slots stay until the batch ends) or static-drop (they do not)");
    f.add("--allocation", allocation_, "paged, or contiguous: cache for the longest request is held by each");
    f.add("--chunk", chunk_, "on: prompts in chunks, as --objective and --step-ms say; off: whole prompts");
    f.add("--objective", objective_, "latency: prompts keep gaps even; throughput: as they come");
    f.add("--pools", pools_, "1, or 2: half of the hardware for each class");
    f.add("--batch-share", batch_share_, "of requests that are of batch class");
    f.add("--max-sequences", scheduler_.max_sequences, "sequences that run at once");
    f.add("--max-step-tokens", max_step_tokens_, "tokens a step (0: what a server of this hardware takes)");
    f.add("--step-ms", step_ms_, "time that prompts may make of a step while interactive requests are there (0: as the objective says)");
    f.add("--kv-memory", kv_memory_, "cache (default: what the hardware's memory leaves)");
    f.add("--slo", slo_, "targets for goodput, \"ttft_ms=500,tpot_ms=30\"");
    f.add("-o,--threads", threads_, "of --hardware cpu (0: every core)");
    f.add("--json", json_, "one JSON object on standard output");
    f.example("sluice simulate --trace azure.csv --hardware h200 --model-shape llama-8b --max-sequences 256 --requests 20000");
  }

  Result<int> run(const Flags& flags) override {
    SLUICE_TRY(read_flags());
    if (!work_.trace.empty() && !flags.given("--requests")) work_.requests = kWholeTrace;
    SLUICE_ASSIGN(const lab::ModelSizes sizes, model_sizes());
    SLUICE_ASSIGN(lab::Hardware hardware, lab::find_hardware(hardware_, threads_ > 0 ? threads_ : lab::default_threads()));
    SLUICE_ASSIGN(const std::vector<lab::Arrival> arrivals, lab::plan_workload(work_));
    scheduler_.max_step_tokens = step_tokens(hardware, objective_);
    int longest = 0;
    for (const lab::Arrival& a : arrivals) longest = std::max(longest, a.prompt_tokens + a.output_tokens);
    SLUICE_TRY(size_cache(hardware, sizes));
    scheduler_.max_context = longest;
    if (allocation_ == "contiguous") options_.reserve_tokens = longest;
    if (chunk_ == "off") scheduler_.max_step_tokens = std::max(scheduler_.max_step_tokens, longest + scheduler_.max_sequences);
    options_.scheduler = scheduler_;
    options_.cost = lab::cost_model(hardware, sizes, work_.seed);
    options_.request_us = hardware.request_us;
    if (pools_ == 1) options_.step_cost = hardware.step_cost;  // half of the hardware takes twice as long
    options_.seed = work_.seed;
    std::fprintf(stderr, "%s (%s): %d blocks of %d tokens\n", hardware.name.c_str(), hardware.source.c_str(), scheduler_.total_blocks, scheduler_.block_tokens);
    return pools_ == 1 ? one_pool(arrivals) : two_pools(arrivals, hardware);
  }

 private:
  Status read_flags() {
    const auto one_of = [](const std::string& v, std::initializer_list<const char*> all) {
      return std::any_of(all.begin(), all.end(), [&](const char* a) { return v == a; });
    };
    if (!one_of(policy_, {"continuous", "static", "static-drop"})) return invalid("'" + policy_ + "' is none of continuous, static, static-drop", "--policy");
    if (!one_of(allocation_, {"paged", "contiguous"})) return invalid("'" + allocation_ + "' is neither paged nor contiguous", "--allocation");
    if (!one_of(chunk_, {"on", "off"})) return invalid("'" + chunk_ + "' is neither on nor off", "--chunk");
    if (pools_ != 1 && pools_ != 2) return invalid(std::to_string(pools_) + " is neither 1 nor 2", "--pools");
    if (!(batch_share_ >= 0 && batch_share_ <= 1)) return invalid("must be from 0 to 1", "--batch-share");
    if (work_.divide_lengths < 1) return invalid("must be at least 1", "--divide-lengths");
    if (scheduler_.max_sequences < 1 || scheduler_.max_sequences > 4096) return invalid(std::to_string(scheduler_.max_sequences) + " is outside 1..4096", "--max-sequences");
    if (max_step_tokens_ < 0) return invalid(std::to_string(max_step_tokens_) + " is below 0", "--max-step-tokens");
    const double rate = rate_ == "inf" ? HUGE_VAL : std::atof(rate_.c_str());
    if (!(rate > 0)) return invalid("'" + rate_ + "' is no number above 0", "--rate");
    work_.trace_speed = rate;
    work_.rate = std::isinf(rate) || !work_.trace.empty() ? 0 : rate;
    options_.static_batches = policy_ != "continuous";
    options_.keep_finished = policy_ == "static";
    SLUICE_TRY(lab::set_objective(chunk_ == "on" ? objective_ : "throughput", chunk_ == "on" ? step_ms_ : 0, true, scheduler_));
    scheduler_.prefix_cache = false;
    lab::LoadOptions cache;
    cache.kv_type = kv_type_;
    scheduler_.block_tokens = lab::block_tokens_of(cache);
    return lab::parse_slo(slo_, options_.slo_ttft_ms, options_.slo_tpot_ms);
  }

  Result<lab::ModelSizes> model_sizes() const {
    lab::LoadOptions load;
    load.model = model_;
    load.random = model_.empty() ? shape_ : "";
    load.weight_type = weight_type_;
    SLUICE_ASSIGN(const auto file, lab::open_weights(load, false));
    SLUICE_ASSIGN(const model::ModelSpec s, model::read_spec(file->metadata()));
    SLUICE_ASSIGN(const CacheType kv, lab::parse_kv_type(kv_type_));
    lab::ModelSizes m;
    for (const format::TensorEntry& t : file->tensors()) m.weight_bytes += t.file_bytes();
    m.kv_bytes_per_token = exec::DeviceExecutor::kv_bytes_per_token(s, kv, scheduler_.block_tokens);
    m.attention_width = double(s.q_heads) * s.head_dim * s.num_layers;
    m.layer_parameters = s.num_layers * double(s.dim) * (2.0 * s.q_heads * s.head_dim + 2.0 * s.kv_heads * s.head_dim + 3.0 * s.ffn_dim);
    m.head_parameters = double(s.dim) * s.vocab;
    return m;
  }

  Status size_cache(const lab::Hardware& hardware, const lab::ModelSizes& sizes) {
    uint64_t bytes = hardware.memory_bytes > sizes.weight_bytes ? hardware.memory_bytes - sizes.weight_bytes : 0;
    if (!kv_memory_.empty()) {
      SLUICE_ASSIGN(bytes, lab::parse_bytes(kv_memory_, "--kv-memory"));
    }
    const uint64_t blocks = bytes / (sizes.kv_bytes_per_token * uint64_t(scheduler_.block_tokens));
    if (blocks < 1) return invalid("no memory is left for the cache: give --kv-memory", "--hardware");
    scheduler_.total_blocks = int(std::min<uint64_t>(blocks, 1u << 24));
    return {};
  }

  int step_tokens(const lab::Hardware& hardware, const std::string& objective) const {
    return std::max(max_step_tokens_ > 0 ? max_step_tokens_ : lab::default_step_tokens(!hardware.accelerator, objective), scheduler_.max_sequences);
  }

  bool is_batch(size_t i) const { return Rng(work_.seed, i + 77).uniform() < batch_share_; }

  Result<int> one_pool(const std::vector<lab::Arrival>& arrivals) {
    SLUICE_ASSIGN(const lab::SimulateReport r, lab::simulate(options_, arrivals, batch_share_ > 0 ? [this](size_t i) { return is_batch(i); } : std::function<bool(size_t)>()));
    print({{"", r}});
    return 0;
  }

  // Each class by itself on half of the hardware: steps take twice as long, half of the cache is there.
  Result<int> two_pools(const std::vector<lab::Arrival>& arrivals, const lab::Hardware& hardware) {
    std::vector<lab::Arrival> split[2];
    for (size_t i = 0; i < arrivals.size(); ++i) split[is_batch(i)].push_back(arrivals[i]);
    options_.scheduler.total_blocks = std::max(1, options_.scheduler.total_blocks / 2);
    options_.cost = [whole = options_.cost](const sched::StepShape& s) { return 2 * whole(s); };
    std::vector<std::pair<std::string, lab::SimulateReport>> reports;
    for (const int batch : {0, 1}) {
      lab::SimulateOptions o = options_;
      if (batch) {
        SLUICE_TRY(lab::set_objective("throughput", 0, true, o.scheduler));
        if (chunk_ == "on") o.scheduler.max_step_tokens = step_tokens(hardware, "throughput");
      }
      SLUICE_ASSIGN(lab::SimulateReport r, lab::simulate(o, split[batch], [&](size_t) { return batch == 1; }));
      reports.emplace_back(batch ? "batch" : "interactive", std::move(r));
    }
    print(reports);
    return 0;
  }

  void print(const std::vector<std::pair<std::string, lab::SimulateReport>>& reports) const {
    Json all = Json::array();
    for (const auto& [pool, r] : reports) {
      Json j = load_report_json(r);
      j["kv_waste_pct"] = r.kv_waste_pct;
      j["preemptions"] = r.preemptions;
      j["steps"] = r.steps;
      j["step_error_p90"] = r.step_error_p90;
      j["wall_s"] = r.wall_s;
      if (!pool.empty()) j["pool"] = pool;
      for (size_t c = 0; c < r.classes.size(); ++c) {
        j["classes"].push_back(load_report_json(r.classes[c]));
        j["classes"].back()["class"] = kClasses[c];
      }
      all.push_back(std::move(j));
      if (json_) continue;
      if (!pool.empty()) std::printf("pool %s\n", pool.c_str());
      std::printf("%d requests in %.1f s of simulated time (%.2f s to simulate): %.1f output tokens/s, %.1f in all, %.2f good requests/s\n", r.requests, r.duration_s, r.wall_s,
                  r.output_tok_s, r.total_tok_s, r.goodput_rps);
      std::printf("cache waste %.2f %%, %lu preemptions, %lu steps\n", r.kv_waste_pct, (unsigned long)r.preemptions, (unsigned long)r.steps);
      print_percentiles(r);
      for (size_t c = 0; c < r.classes.size(); ++c) {
        std::printf("of class %s\n", kClasses[c]);
        print_percentiles(r.classes[c]);
      }
    }
    if (json_) std::cout << (all.size() == 1 ? all[0] : Json{{"pools", all}}).dump() << "\n";
  }

  static constexpr const char* kClasses[] = {"interactive", "batch"};
  static constexpr int kWholeTrace = 10'000'000;
  std::string model_, shape_ = "llama-8b", weight_type_ = "bf16", kv_type_ = "f16", hardware_ = "h200", rate_ = "inf", policy_ = "continuous", allocation_ = "paged",
              chunk_ = "on", objective_ = "latency", kv_memory_, slo_;
  lab::WorkloadOptions work_;
  lab::SimulateOptions options_;
  sched::SchedulerOptions scheduler_;
  double step_ms_ = 0, batch_share_ = 0;
  int pools_ = 1, threads_ = 0, max_step_tokens_ = 0;
  bool json_ = false;
};

}  // namespace

extern const Command command_simulate{"simulate", "the real scheduler on a cost model", [] { return std::unique_ptr<Invocation>(new Simulate); }};

}  // namespace sluice::apps
