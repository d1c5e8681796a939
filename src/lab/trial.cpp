#include "lab/trial.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <thread>

#include "engine/step_gate.h"
#include "lab/timed_sink.h"

namespace sluice::lab {
namespace {

constexpr double kLeastGain = 0.01;      // whatever the noise
constexpr double kHopeless = 0.85;       // a first pair below this ends a comparison

// salt: what a run leaves in the prefix cache is of no use to the next, which has the same prompts.
sched::Submission submission_of(const UserRequest& r, uint64_t salt) {
  sched::Submission s;
  s.prompt = r.prompt;
  s.max_tokens = r.output_tokens;
  s.ignore_eos = true;
  s.sampling.temperature = 0;
  s.cache_salt = salt;
  if (r.batch) s.request_class = sched::RequestClass::kBatch;
  return s;
}

Result<TrialFigures> figures_of(const std::vector<UserRequest>& requests, const std::vector<Times>& times, TimeUs begin) {
  TrialFigures f;
  std::vector<double> ttft, tpot, gaps, e2e;
  TimeUs end = begin;
  int64_t tokens = 0, batch_tokens = 0;
  const bool all_batch = std::all_of(requests.begin(), requests.end(), [](const UserRequest& r) { return r.batch; });
  for (size_t n = 0; n < times.size(); ++n) {
    const Times& t = times[n];
    if (!t.error.empty() || t.tokens.empty()) return Error{ErrorCode::kInternal, "a request failed while measured: " + (t.error.empty() ? "no token" : t.error), {}};
    end = std::max(end, t.last);
    tokens += int64_t(t.tokens.size());
    if (requests[n].batch) batch_tokens += int64_t(t.tokens.size());
    if (requests[n].batch && !all_batch) continue;
    ttft.push_back(double(t.tokens.front() - t.submitted) * 1e-6);
    e2e.push_back(double(t.last - t.submitted) * 1e-6);
    for (size_t i = 1; i < t.tokens.size(); ++i) gaps.push_back(double(t.tokens[i] - t.tokens[i - 1]) * 1e-6);
    if (t.tokens.size() > 1) tpot.push_back(double(t.tokens.back() - t.tokens.front()) * 1e-6 / double(t.tokens.size() - 1));
  }
  f.requests = int(times.size());
  f.duration_s = std::max(1e-6, double(end - begin) * 1e-6);
  f.output_tok_s = double(tokens) / f.duration_s;
  f.batch_tok_s = double(batch_tokens) / f.duration_s;
  f.ttft_ms = percentiles_ms(std::move(ttft));
  f.tpot_ms = percentiles_ms(std::move(tpot));
  f.gap_ms = percentiles_ms(std::move(gaps));
  f.e2e_ms = percentiles_ms(std::move(e2e));
  return f;
}

// Which request comes when, in order of time.
std::vector<std::pair<double, size_t>> arrivals_of(const TrialLoad& load) {
  std::vector<std::pair<double, size_t>> out;
  Rng rng(load.seed);
  double at_s = 0;
  for (size_t i = 0; i < load.requests.size(); ++i) {
    const UserRequest& r = load.requests[i];
    if (load.rate > 0 && !r.batch) at_s -= std::log(double(rng.uniform())) / load.rate;
    out.emplace_back(r.batch ? 0 : load.rate > 0 ? at_s : r.at_s, i);
  }
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace

Result<std::unique_ptr<Trial>> Trial::start(std::vector<LoadedPool> pools, const std::vector<double>& step_cost) {
  auto trial = std::unique_ptr<Trial>(new Trial);
  std::vector<double> weights;
  for (const LoadedPool& p : pools)
    if (p.gate_member >= 0) weights.push_back(p.spec.weight);
  const auto gate = weights.size() > 1 ? std::make_shared<engine::StepGate>(weights) : nullptr;
  for (LoadedPool& pool : pools) {
    engine::EngineOptions o;
    o.scheduler = pool.model.scheduler;
    o.max_queue = size_t{1} << 20;
    o.step_cost = step_cost;
    if (trial->running_.empty()) o.keep_step_cost = [learned = trial->learned_](const std::vector<double>& state) { *learned = state; };
    if (gate && pool.gate_member >= 0) {
      o.gate = gate;
      o.gate_member = pool.gate_member;
      pool.model.device.depth = 1;
    }
    o.speculator = std::move(pool.speculator);
    const OnCores here(pool.cores);
    SLUICE_ASSIGN(auto executor, pool.model.make_executor());
    auto engine = std::make_unique<engine::Engine>(o, pool.model.tokenizer, std::move(executor), &trial->clock_);
    trial->running_.push_back({std::move(pool), std::move(engine)});
  }
  return trial;
}

Trial::Running& Trial::pool_of(const UserRequest& r) {
  const auto at = std::find_if(running_.begin(), running_.end(), [&](const Running& x) { return x.pool.spec.takes[r.batch]; });
  return at == running_.end() ? running_.front() : *at;
}

Result<TrialFigures> Trial::run(const TrialLoad& load) {
  for (const UserRequest& r : load.requests) SLUICE_TRY(sched::Scheduler::fits(pool_of(r).pool.model.scheduler, int64_t(r.prompt.size()), r.output_tokens));
  ++runs_;
  std::vector<Times> times(load.requests.size());
  std::vector<sched::Submission> submissions;
  Gate gate{int(load.requests.size())};
  for (size_t i = 0; i < load.requests.size(); ++i) {
    times[i].tokens.reserve(size_t(load.requests[i].output_tokens));
    submissions.push_back(submission_of(load.requests[i], runs_));
    submissions.back().sink = std::make_shared<TimedSink>(&times[i], &gate, &clock_);
  }
  const auto arrivals = arrivals_of(load);
  const TimeUs begin = clock_.now_us();
  for (size_t n = 0; n < arrivals.size(); ++n) {
    const auto [at_s, i] = arrivals[n];
    const TimeUs wait = begin + TimeUs(at_s * 1e6) - clock_.now_us();
    if (wait > 0) std::this_thread::sleep_for(std::chrono::microseconds(wait));
    times[i].submitted = clock_.now_us();
    if (Status s = pool_of(load.requests[i]).engine->submit(std::move(submissions[i])); !s.ok()) {
      for (size_t j = n; j < arrivals.size(); ++j) gate.one_ended();  // never sent
      gate.wait();
      return s.error();
    }
  }
  gate.wait();
  return figures_of(load.requests, times, begin);
}

std::vector<double> Trial::stop() {
  running_.clear();
  return *learned_;
}

double Comparison::middle() const {
  std::vector<double> sorted = ratios;
  std::sort(sorted.begin(), sorted.end());
  return sorted[sorted.size() / 2];
}
double Comparison::least() const { return *std::min_element(ratios.begin(), ratios.end()); }
double Comparison::most() const { return *std::max_element(ratios.begin(), ratios.end()); }
bool Comparison::better() const { return least() > 1 && middle() > 1 + std::max(kLeastGain, noise); }

Result<Comparison> compare_trials(Trial& before, Trial& after, const TrialLoad& load, int pairs, const std::function<double(const TrialFigures&)>& score) {
  Comparison c;
  std::vector<TrialFigures> b, a;
  SLUICE_TRY(after.run(load));  // its memory is touched for the first time
  for (int i = 0; i < pairs; ++i) {
    for (const bool second : {i % 2 == 1, i % 2 == 0}) {
      SLUICE_ASSIGN(const TrialFigures f, (second ? after : before).run(load));
      (second ? a : b).push_back(f);
    }
    c.ratios.push_back(score(a.back()) / score(b.back()));
    if (i == 0 && c.ratios[0] < kHopeless) break;
  }
  const auto by_score = [&](const TrialFigures& x, const TrialFigures& y) { return score(x) < score(y); };
  std::sort(b.begin(), b.end(), by_score);
  std::sort(a.begin(), a.end(), by_score);
  c.before = b[b.size() / 2];
  c.after = a[a.size() / 2];
  c.noise = (score(b.back()) - score(b.front())) / 2 / score(c.before);
  return c;
}

}  // namespace sluice::lab
