#include "lab/tune.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "lab/machine.h"
#include "lab/tuner.h"

namespace sluice::lab {
namespace {

constexpr int kLeastRequests = 16, kMostRequests = 2000, kFirstRequests = 16;
constexpr double kLatencyLoad = 0.5;     // of what the beginning can do, where no rate is given

}  // namespace

std::string shown(double v, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*g", digits, v);
  return text;
}

Result<TuneReport> Tuner::run() {
  SLUICE_TRY(prepare());
  SLUICE_TRY(pools());
  SLUICE_TRY(cache_and_batching());
  SLUICE_TRY(quantisation());
  SLUICE_TRY(chunk_and_step_time());
  SLUICE_TRY(speculation());
  SLUICE_TRY(last_comparison());
  r_.seconds = elapsed_s();
  return std::move(r_);
}

double Tuner::score(const TrialFigures& f) const { return latency_ ? 1e6 / std::sqrt(std::max(1e-9, f.ttft_ms.p90 * f.gap_ms.p99)) : f.output_tok_s; }

Status Tuner::prepare() {
  if (!(o_.budget_s >= 1 && o_.budget_s <= 86400)) return invalid("must be from 1 to 86400", "--budget-s");
  if (!(o_.rate >= 0 && o_.rate < 1e6)) return invalid("must be from 0 to 1e6", "--rate");
  SLUICE_ASSIGN(const kernels::KernelTable* table, choose_kernels(beginning_.load));
  if (!table->host_memory) return Error{ErrorCode::kUnsupported, "measures on the processor only so far", "--device"};
  if (!o_.memory.empty()) SLUICE_TRY(share_memory(*table));
  SLUICE_ASSIGN(loaded_, load_model(beginning_.load, nullptr));
  // Every configuration has the same cache in bytes.
  if (beginning_.load.kv_memory.empty()) beginning_.load.kv_memory = std::to_string(loaded_.memory.kv_bytes);
  current_ = beginning_;
  SLUICE_ASSIGN(requests_, read_user_requests(o_.data, loaded_));
  for (const std::string& path : o_.candidates) SLUICE_TRY(check_candidate(path));
  SLUICE_TRY(check_gate());
  SLUICE_TRY(check_speculation(o_.speculate));
  if (!o_.speculate.draft.empty()) {
    SLUICE_ASSIGN(draft_, load_draft(loaded_, beginning_.load, o_.speculate.draft));
  }
  r_.model = loaded_.name;
  r_.objective = o_.load.objective;
  r_.score = latency_ ? "time to first token (90th percentile) and gap between tokens (99th), their geometric mean" : "output tokens a second, all requests at once";
  const MachineCeilings m = measure_machine(loaded_.device.threads, size_t{64} << 20);
  r_.machine = m.cpu + ", " + std::to_string(m.threads) + " threads, " + shown(m.read_gb_s) + " GB/s of reads, others kept it " + shown(100 * m.busy_fraction, 2) + " % busy";
  began_ = clock_.now_us();
  return size_load();
}

Status Tuner::check_candidate(const std::string& path) const {
  LoadOptions other = beginning_.load;
  other.model = path;
  other.random.clear();
  SLUICE_ASSIGN(const auto file, open_weights(other, false));
  const format::TensorEntry* e = file->find("token_embd.weight");
  if (!e || e->rows() != loaded_.scheduler.vocab) return invalid(path + " is no file of the same model: its vocabulary is another", "--candidate");
  return {};
}

Status Tuner::check_gate() const {
  SLUICE_ASSIGN(const auto gate, parse_gate(o_.gate));
  for (const GateCondition& g : gate)
    if (g.name == "ppl" || g.name == "accuracy" || g.name == "needle") return invalid("'" + g.name + "' is not measured here; kl, kl_p99, top1 and ppl_ratio are", "--gate");
  return {};
}

// What the fixed terms leave of --memory is the cache's.
Status Tuner::share_memory(const kernels::KernelTable& table) {
  SLUICE_ASSIGN(const uint64_t memory, parse_bytes(o_.memory, "--memory"));
  SLUICE_ASSIGN(const ModelShape shape, read_shape(beginning_.load, table));
  SLUICE_ASSIGN(const MemoryPlan p, plan_memory(shape.weights, shape.spec, table, beginning_.load, memory));
  if (memory <= p.fixed()) return invalid("the model takes " + std::to_string(p.fixed()) + " bytes before any cache", "--memory");
  beginning_.load.kv_memory = std::to_string(memory - p.fixed());
  r_.config.emplace_back("kv-memory", beginning_.load.kv_memory);
  return {};
}

// How many requests make a run of the wanted length; with a first, short run.
Status Tuner::size_load() {
  load_.seed = o_.seed;
  fill(kFirstRequests);
  SLUICE_ASSIGN(auto trial, start(beginning_));
  SLUICE_TRY(trial->run(load_));  // what is made on first use
  SLUICE_ASSIGN(const TrialFigures f, trial->run(load_));
  const double capacity = f.requests / f.duration_s;
  learned_ = trial->stop();
  const double runs = 2.0 * kPairs * double(12 + o_.candidates.size());
  const double run_s = std::clamp((1 - kLastShare) * o_.budget_s / runs, 0.2, 10.0);
  if (latency_) load_.rate = o_.rate > 0 ? o_.rate : kLatencyLoad * capacity;
  const int n = int(std::clamp((latency_ ? load_.rate : capacity) * run_s, double(kLeastRequests), double(kMostRequests)));
  fill(n);
  if (latency_ && load_.requests.back().at_s > 0) {  // a trace's bursts, at the wanted rate
    const double faster = load_.requests.back().at_s * load_.rate / n;
    for (UserRequest& x : load_.requests) x.at_s /= faster;
    load_.rate = 0;
  }
  r_.load = std::to_string(n) + " requests a run out of " + std::to_string(requests_.size()) + (latency_ ? ", " + shown(latency_rate(n)) + " a second" : ", all at once");
  say(r_.load);
  return {};
}

// n requests in order, from the first on again where there are fewer.
void Tuner::fill(int n) {
  load_.requests.clear();
  for (int i = 0; i < n; ++i) {
    load_.requests.push_back(requests_[size_t(i) % requests_.size()]);
    UserRequest& x = load_.requests.back();
    if (!latency_) x.at_s = 0;
    else x.at_s += double(size_t(i) / requests_.size()) * requests_.back().at_s;
  }
}

Status Tuner::last_comparison() {
  const bool changed = std::any_of(r_.steps.begin(), r_.steps.end(), [](const TuneStep& s) {
    return std::any_of(s.candidates.begin(), s.candidates.end(), [](const TuneCandidate& c) { return c.taken; });
  });
  SLUICE_ASSIGN(auto before, start(beginning_));
  SLUICE_TRY(before->run(load_));
  if (!changed) {
    SLUICE_ASSIGN(r_.beginning, before->run(load_));
    r_.end = r_.beginning;
    r_.result = "Nothing was better than the beginning, which stays.";
  } else {
    SLUICE_ASSIGN(auto after, start(current_));
    SLUICE_ASSIGN(const Comparison x, compare(*before, *after, kLastPairs));
    r_.beginning = x.before;
    r_.end = x.after;
    r_.gain = x.middle();
    r_.gain_min = x.least();
    r_.gain_max = x.most();
    if (x.middle() > 1) {
      r_.result = "All together are " + shown(r_.gain) + " times as good as the beginning (" + shown(r_.gain_min) + " to " + shown(r_.gain_max) + ").";
    } else {
      r_.result = "All together were " + shown(r_.gain) + " times as good as the beginning: dropped, the beginning stays.";
      std::erase_if(r_.config, [](const FlagValue& f) { return f.first != "kv-memory"; });
      current_ = beginning_;
      r_.end = r_.beginning;
      r_.gain = r_.gain_min = r_.gain_max = 1;
    }
  }
  // A beginning that is not what `serve` does by itself is part of the advice.
  const LoadOptions plain;
  const SpeculateOptions plain_speculation;
  const auto keep = [&](const char* flag, const std::string& value, const std::string& otherwise) {
    const bool there = std::any_of(r_.config.begin(), r_.config.end(), [&](const FlagValue& f) { return f.first == flag; });
    if (!there && value != otherwise) r_.config.emplace_back(flag, value);
  };
  keep("max-sequences", std::to_string(current_.load.max_sequences), std::to_string(plain.max_sequences));
  keep("max-step-tokens", std::to_string(current_.load.max_step_tokens), std::to_string(plain.max_step_tokens));
  keep("block-tokens", std::to_string(current_.load.block_tokens), std::to_string(plain.block_tokens));
  keep("kv-type", current_.load.kv_type, plain.kv_type);
  keep("objective", current_.load.objective, plain.objective);
  keep("step-ms", shown(current_.load.step_ms, 6), shown(plain.step_ms, 6));
  keep("speculate", current_.speculate.mode, plain_speculation.mode);
  keep("draft", current_.speculate.draft, plain_speculation.draft);
  keep("threads", std::to_string(current_.load.threads), std::to_string(plain.threads));
  if (!o_.load.kv_memory.empty()) keep("kv-memory", current_.load.kv_memory, "");
  say(r_.result);
  return {};
}

Result<TuneReport> tune(const TuneOptions& o) { return Tuner(o).run(); }

}  // namespace sluice::lab
