#include "lab/tune.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>

#include "lab/machine.h"
#include "lab/pools.h"

namespace sluice::lab {
namespace {

constexpr int kPairs = 3, kLastPairs = 5;
constexpr int kLeastRequests = 16, kMostRequests = 2000, kFirstRequests = 16;
constexpr double kLastShare = 0.12;      // of the budget, kept for the last comparison
constexpr double kLatencyLoad = 0.5;     // of what the beginning can do, where no rate is given

std::string shown(double v, int digits = 3) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*g", digits, v);
  return text;
}

std::string as_flags(const std::vector<FlagValue>& flags) {
  std::string out;
  for (const auto& [flag, value] : flags) out += (out.empty() ? "--" : " --") + flag + " " + value;
  return out;
}

// What a server is started with.
struct Setting {
  LoadOptions load;
  std::vector<std::string> pools;  // of --pool
};

void set_flags(const std::vector<FlagValue>& flags, Setting& to) {
  LoadOptions& o = to.load;
  const auto number = [](const std::string& text) {
    int v = 0;
    std::from_chars(text.data(), text.data() + text.size(), v);
    return v;
  };
  for (const auto& [flag, value] : flags) {
    if (flag == "max-sequences") o.max_sequences = number(value);
    else if (flag == "block-tokens") o.block_tokens = number(value);
    else if (flag == "max-step-tokens") o.max_step_tokens = number(value);
    else if (flag == "threads") o.threads = number(value);
    else if (flag == "kv-type") o.kv_type = value;
    else if (flag == "kv-memory") o.kv_memory = value;
    else if (flag == "objective") o.objective = value;
    else if (flag == "pool") to.pools.push_back(value);
    else if (flag == "step-ms") o.step_ms = std::strtod(value.c_str(), nullptr);
    else SLUICE_CHECK(!"a flag that the tuner knows");
  }
}

class Tuner {
 public:
  explicit Tuner(const TuneOptions& o) : o_(o), beginning_{o.load, {}}, latency_(o.load.objective == "latency") {}

  Result<TuneReport> run() {
    SLUICE_TRY(prepare());
    SLUICE_TRY(pools());
    SLUICE_TRY(cache_and_batching());
    SLUICE_TRY(quantisation());
    SLUICE_TRY(chunk_and_step_time());
    speculation();
    SLUICE_TRY(last_comparison());
    r_.seconds = elapsed_s();
    return std::move(r_);
  }

 private:
  double elapsed_s() const { return double(clock_.now_us() - began_) * 1e-6; }
  void say(const std::string& line) const {
    if (o_.progress) o_.progress(line);
  }
  // What is compared: larger is better.
  double score(const TrialFigures& f) const { return latency_ ? 1e6 / std::sqrt(std::max(1e-9, f.ttft_ms.p90 * f.gap_ms.p99)) : f.output_tok_s; }

  Status prepare() {
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
    r_.model = loaded_.name;
    r_.objective = o_.load.objective;
    r_.score = latency_ ? "time to first token (90th percentile) and gap between tokens (99th), their geometric mean" : "output tokens a second, all requests at once";
    const MachineCeilings m = measure_machine(loaded_.device.threads, size_t{64} << 20);
    r_.machine = m.cpu + ", " + std::to_string(m.threads) + " threads, " + shown(m.read_gb_s) + " GB/s of reads, others kept it " + shown(100 * m.busy_fraction, 2) + " % busy";
    began_ = clock_.now_us();
    return size_load();
  }

  Status check_candidate(const std::string& path) const {
    LoadOptions other = beginning_.load;
    other.model = path;
    other.random.clear();
    SLUICE_ASSIGN(const auto file, open_weights(other, false));
    const format::TensorEntry* e = file->find("token_embd.weight");
    if (!e || e->rows() != loaded_.scheduler.vocab) return invalid(path + " is no file of the same model: its vocabulary is another", "--candidate");
    return {};
  }

  // What the fixed terms leave of --memory is the cache's.
  Status share_memory(const kernels::KernelTable& table) {
    SLUICE_ASSIGN(const uint64_t memory, parse_bytes(o_.memory, "--memory"));
    SLUICE_ASSIGN(const auto file, open_weights(beginning_.load, false));
    SLUICE_ASSIGN(model::ModelSpec spec, model::read_spec(file->metadata()));
    if (const format::TensorEntry* e = file->find("token_embd.weight")) spec.vocab = int(std::min<int64_t>(e->rows(), model::kMaxVocab));
    SLUICE_ASSIGN(const MemoryPlan p, plan_memory(weight_sizes(*file, table), spec, table, beginning_.load, memory));
    if (memory <= p.fixed()) return invalid("the model takes " + std::to_string(p.fixed()) + " bytes before any cache", "--memory");
    beginning_.load.kv_memory = std::to_string(memory - p.fixed());
    r_.config.emplace_back("kv-memory", beginning_.load.kv_memory);
    return {};
  }

  // How many requests make a run of the wanted length; with a first, short run.
  Status size_load() {
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
  double latency_rate(int n) const { return load_.rate > 0 ? load_.rate : n / load_.requests.back().at_s; }

  // n requests in order, from the first on again where there are fewer.
  void fill(int n) {
    load_.requests.clear();
    for (int i = 0; i < n; ++i) {
      load_.requests.push_back(requests_[size_t(i) % requests_.size()]);
      UserRequest& x = load_.requests.back();
      if (!latency_) x.at_s = 0;
      else x.at_s += double(size_t(i) / requests_.size()) * requests_.back().at_s;
    }
  }

  // Pools have even parts of the cache.
  Result<std::unique_ptr<Trial>> start(const Setting& s) {
    SLUICE_ASSIGN(std::vector<PoolSpec> specs, parse_pools(s.pools));
    if (!specs.empty()) {
      SLUICE_ASSIGN(const uint64_t bytes, parse_bytes(s.load.kv_memory, "--kv-memory"));
      for (PoolSpec& p : specs) p.kv_memory = std::to_string(bytes / specs.size());
    }
    SLUICE_ASSIGN(const LoadedModel m, reconfigure(loaded_, s.load, available_memory(loaded_.model->kernels())));
    SLUICE_ASSIGN(auto pools, load_pools(s.load, specs, nullptr, &m));
    return Trial::start(std::move(pools), learned_);
  }

  Result<Comparison> compare(Trial& before, Trial& after, int pairs) {
    return compare_trials(before, after, load_, pairs, [this](const TrialFigures& f) { return score(f); });
  }

  bool time_is_up() const { return elapsed_s() > (1 - kLastShare) * o_.budget_s; }

  // Measures one change to what stands now. Whether it was better.
  Result<bool> try_change(TuneStep& step, Trial& before, const std::vector<FlagValue>& flags) {
    TuneCandidate c;
    c.flags = flags;
    c.setting = as_flags(flags);
    Setting changed = current_;
    set_flags(flags, changed);
    if (time_is_up()) {
      c.why = "not measured: the time was up";
      step.candidates.push_back(std::move(c));
      return false;
    }
    auto after = start(changed);
    if (!after.ok()) {
      c.why = "not possible: " + after.error().message;
      step.candidates.push_back(std::move(c));
      return false;
    }
    SLUICE_ASSIGN(const Comparison x, compare(before, **after, kPairs));
    const bool better = note(step, c, x);
    say(step.name + ": " + c.setting + " " + shown(c.ratio) + " times" + (better ? ", better" : ""));
    step.candidates.push_back(std::move(c));
    return better;
  }

  static bool note(TuneStep& step, TuneCandidate& c, const Comparison& x) {
    c.figures = x.after;
    c.ratio = x.middle();
    c.ratio_min = x.least();
    c.ratio_max = x.most();
    if (step.before.requests == 0) step.before = step.after = x.before;
    if (!x.better()) c.why = x.middle() > 1 ? "no more than runs of one configuration differ" : "not better";
    return x.better();
  }

  // The best of the choices, if one is better, becomes what stands.
  Status choose(TuneStep& step, const std::vector<std::vector<FlagValue>>& choices) {
    SLUICE_ASSIGN(auto before, start(current_));
    SLUICE_TRY(before->run(load_));
    TuneCandidate* best = nullptr;
    const size_t from = step.candidates.size();
    for (const auto& flags : choices) SLUICE_TRY(try_change(step, *before, flags));
    for (size_t i = from; i < step.candidates.size(); ++i) {
      TuneCandidate& c = step.candidates[i];
      if (c.ratio > 0 && c.why.empty() && (!best || c.ratio > best->ratio)) best = &c;
    }
    for (size_t i = from; i < step.candidates.size(); ++i)
      if (TuneCandidate& c = step.candidates[i]; &c != best && c.why.empty()) c.why = "another was better still";
    if (!best) return {};
    best->taken = true;
    set_flags(best->flags, current_);
    for (const FlagValue& f : best->flags) std::erase_if(r_.config, [&](const FlagValue& x) { return x.first == f.first; });
    r_.config.insert(r_.config.end(), best->flags.begin(), best->flags.end());
    step.after = best->figures;
    return {};
  }
  void end_step(TuneStep step) {
    std::string taken;
    for (const TuneCandidate& c : step.candidates)
      if (c.taken) taken += (taken.empty() ? "" : ", ") + c.setting;
    if (step.result.empty()) step.result = taken.empty() ? "Nothing was better than what stood." : "Taken: " + taken + ".";
    say(step.name + ": " + step.result);
    r_.steps.push_back(std::move(step));
  }
  void skip(const char* name, const std::string& why) {
    TuneStep s;
    s.name = name;
    s.result = "Skipped: " + why;
    end_step(std::move(s));
  }

  Status pools();
  Status cache_and_batching();
  Status quantisation();
  Status chunk_and_step_time();
  void speculation();
  Status last_comparison();

  const TuneOptions& o_;
  Setting beginning_, current_;
  bool latency_;
  LoadedModel loaded_;
  std::vector<UserRequest> requests_;
  TrialLoad load_;
  std::vector<double> learned_;  // of steps, so that every trial starts knowing them
  SteadyClock clock_;
  TimeUs began_ = 0;
  TuneReport r_;
};

Status Tuner::pools() {
  const auto batch = std::count_if(requests_.begin(), requests_.end(), [](const UserRequest& x) { return x.batch; });
  if (batch == 0 || size_t(batch) == requests_.size()) {
    skip("pools", "all requests are of one class, so one pool with every thread serves them best.");
    return {};
  }
  TuneStep step;
  step.name = "pools";
  const std::string kv = o_.load.kv_memory.empty() && o_.memory.empty() ? "" : ",kv=" + std::to_string(loaded_.memory.kv_bytes / 2);
  std::vector<std::vector<FlagValue>> choices;
  if (const int threads = loaded_.device.threads; threads >= 2)
    choices.push_back({{"pool", "interactive:threads=" + std::to_string(threads / 2) + kv}, {"pool", "batch:threads=" + std::to_string(threads - threads / 2) + kv}});
  for (const char* weight : {"1", "4"}) choices.push_back({{"pool", std::string("interactive:weight=") + weight + kv}, {"pool", "batch:weight=1" + kv}});
  SLUICE_TRY(choose(step, choices));
  end_step(std::move(step));
  return {};
}

Status Tuner::cache_and_batching() {
  TuneStep step;
  step.name = "cache and batching";
  const auto one = [](const char* flag, int value) { return std::vector<FlagValue>{{flag, std::to_string(value)}}; };
  std::vector<std::vector<FlagValue>> choices;
  for (int stood = 0; stood < current_.load.max_sequences;) {  // while more is better
    choices.clear();
    for (const int n : {stood ? 0 : current_.load.max_sequences / 2, current_.load.max_sequences * 2})
      if (n >= 1 && n <= 4096 && std::min(n, current_.load.max_sequences) < int(load_.requests.size())) choices.push_back(one("max-sequences", n));
    stood = current_.load.max_sequences;
    if (!choices.empty()) SLUICE_TRY(choose(step, choices));
  }
  choices.clear();
  const int tokens = step_tokens(current_.load, loaded_.model->kernels());
  for (const int n : {tokens / 2, tokens * 2})
    if (n >= current_.load.max_sequences && n <= 16384) choices.push_back(one("max-step-tokens", n));
  SLUICE_TRY(choose(step, choices));
  choices.clear();
  for (const int n : {16, 32, 64})
    if (n != current_.load.block_tokens) choices.push_back(one("block-tokens", n));
  if (current_.load.kv_type != "f32") choices.push_back({{"kv-type", "f32"}});  // loses nothing; of the others that is not known
  SLUICE_TRY(choose(step, choices));
  end_step(std::move(step));
  return {};
}

// Another file of the same model may be faster; whether it is as good is not for a clock to say.
Status Tuner::quantisation() {
  TuneStep step;
  step.name = "quantisation";
  if (o_.candidates.empty()) {
    skip("quantisation", "no other file of this model was given (--candidate FILE), and quality is not judged here.");
    return {};
  }
  SLUICE_ASSIGN(auto before, start(current_));
  SLUICE_TRY(before->run(load_));
  for (const std::string& path : o_.candidates) {
    TuneCandidate c;
    c.setting = path;
    c.why = "not measured: the time was up";
    if (!time_is_up()) {
      LoadOptions other = current_.load;
      other.model = path;
      other.random.clear();
      SLUICE_ASSIGN(const auto specs, parse_pools(current_.pools));
      SLUICE_ASSIGN(auto pools, load_pools(other, specs, nullptr));
      SLUICE_ASSIGN(auto after, Trial::start(std::move(pools), {}));
      SLUICE_ASSIGN(const Comparison x, compare(*before, *after, kPairs));
      note(step, c, x);
      c.why = "quality not judged: speed alone changes no file";
      say("quantisation: " + path + " " + shown(c.ratio) + " times");
    }
    step.candidates.push_back(std::move(c));
  }
  step.result = "Speed compared only; which file is good enough is for a test of quality on your own text to say.";
  end_step(std::move(step));
  return {};
}

Status Tuner::chunk_and_step_time() {
  TuneStep step;
  step.name = "chunk and step time";
  std::vector<std::vector<FlagValue>> choices;
  if (latency_) {
    SLUICE_ASSIGN(auto trial, start(current_));
    SLUICE_ASSIGN(const TrialFigures f, trial->run(load_));
    for (const double times : {1.5, 2.0, 3.0, 5.0}) {
      const double ms = std::max(0.1, std::round(10 * times * f.gap_ms.p50) / 10);
      if (ms <= 60000) choices.push_back({{"step-ms", shown(ms, 4)}});
    }
    choices.push_back({{"objective", "throughput"}});
  } else {
    choices.push_back({{"objective", "latency"}});
  }
  SLUICE_TRY(choose(step, choices));
  end_step(std::move(step));
  return {};
}

void Tuner::speculation() { skip("speculation", "no draft model was given."); }

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
    }
  }
  // A beginning that is not what `serve` does by itself is part of the advice.
  const LoadOptions plain;
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
  keep("threads", std::to_string(current_.load.threads), std::to_string(plain.threads));
  if (!o_.load.kv_memory.empty()) keep("kv-memory", current_.load.kv_memory, "");
  say(r_.result);
  return {};
}

}  // namespace

Result<TuneReport> tune(const TuneOptions& o) { return Tuner(o).run(); }

}  // namespace sluice::lab
