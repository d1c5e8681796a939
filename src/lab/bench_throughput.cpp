#include "lab/bench_throughput.h"

#include <algorithm>
#include <fstream>

#include <nlohmann/json.hpp>

#include "base/rng.h"
#include "engine/engine.h"
#include "lab/timed_sink.h"

namespace sluice::lab {
namespace {

sched::Submission make_submission(const RequestLengths& r, int vocab, uint64_t seed, uint64_t index) {
  Rng rng(seed, index + 1);
  sched::Submission s;
  for (int i = 0; i < r.prompt; ++i) s.prompt.push_back(int32_t(rng.below(uint32_t(vocab))));
  s.max_tokens = r.output;
  s.ignore_eos = true;
  s.sampling.temperature = 0;
  return s;
}

void count_live(ThroughputReport& r, const std::vector<Times>& times) {
  std::vector<std::pair<TimeUs, int>> changes;
  TimeUs lived = 0;
  for (const Times& t : times) {
    if (!t.error.empty() || t.tokens.empty()) continue;
    changes.emplace_back(t.tokens.front(), 1);
    changes.emplace_back(t.last, -1);  // before who comes at the same time
    lived += t.last - t.tokens.front();
  }
  std::sort(changes.begin(), changes.end());
  int live = 0;
  for (const auto& [at, change] : changes) r.live_peak = std::max(r.live_peak, live += change);
  if (r.duration_s > 0) r.live_mean = double(lived) * 1e-6 / r.duration_s;
}

void summarise(ThroughputReport& r, const std::vector<Times>& times, TimeUs begin) {
  TimeUs end = begin, last_first = 0, first_end = INT64_MAX;
  std::vector<double> ttft;
  for (const Times& t : times) {
    if (!t.error.empty() || t.tokens.empty()) {
      ++r.failed;
      if (r.first_error.empty()) r.first_error = t.error;
      continue;
    }
    r.output_tokens += int64_t(t.tokens.size());
    end = std::max(end, t.last);
    last_first = std::max(last_first, t.tokens.front());
    first_end = std::min(first_end, t.tokens.back());
    ttft.push_back(double(t.tokens.front() - t.submitted) * 1e-6);
  }
  r.ttft_ms = percentiles_ms(std::move(ttft));
  r.duration_s = double(end - begin) * 1e-6;
  if (r.duration_s > 0) {
    r.output_tok_s = double(r.output_tokens) / r.duration_s;
    r.total_tok_s = double(r.output_tokens + r.prompt_tokens) / r.duration_s;
  }
  count_live(r, times);
  if (first_end <= last_first || first_end == INT64_MAX) return;
  int64_t steady = 0;
  for (const Times& t : times)
    for (TimeUs at : t.tokens) steady += at > last_first && at <= first_end;
  r.steady_tok_s = double(steady) / (double(first_end - last_first) * 1e-6);
  if (r.steady_tok_s > 0) r.steady_step_ms = 1e3 * r.requests / r.steady_tok_s;
}

// What is made on first use (kernels' loading, a library's choices, recorded steps) is not timed: the first requests run once with
// other prompts, for a few tokens each.
Status warm_up(engine::Engine& engine, const Clock& clock, int vocab, const std::vector<RequestLengths>& requests, uint64_t seed) {
  constexpr int64_t kWarmPromptTokens = 1 << 16;
  constexpr int kWarmOutputTokens = 4;  // of each; the second step of a size is recorded, in two places
  size_t n = 0;
  for (int64_t tokens = 0; n < requests.size() && (n == 0 || tokens + requests[n].prompt <= kWarmPromptTokens); ++n) tokens += requests[n].prompt;
  std::vector<Times> times(n);
  Gate gate{int(n)};
  for (size_t i = 0; i < n; ++i) {
    sched::Submission s = make_submission({requests[i].prompt, std::min(requests[i].output, kWarmOutputTokens + 2 * int(i % 2))}, vocab, seed, i);
    s.sink = std::make_shared<TimedSink>(&times[i], &gate, &clock);
    SLUICE_TRY(engine.submit(std::move(s)));
  }
  gate.wait();
  return {};
}

}  // namespace

Result<std::vector<RequestLengths>> read_lengths(const std::string& file_and_list) {
  const size_t colon = file_and_list.rfind(':');
  const std::string path = file_and_list.substr(0, colon), list = colon == std::string::npos ? "" : file_and_list.substr(colon + 1);
  std::ifstream in(path);
  if (!in) return Error{ErrorCode::kNotFound, path + ": cannot be read", "--lengths"};
  const nlohmann::json root = nlohmann::json::parse(in, nullptr, false);
  if (!root.is_object()) return bad_file(path + ": no JSON object");
  const nlohmann::json lists = list.empty() ? root : root.value(list, nlohmann::json());
  const auto usable = [](const nlohmann::json& a) {
    return a.is_array() && std::all_of(a.begin(), a.end(), [](const auto& v) { return v.is_number_integer() && v > 0 && v < (1 << 24); });
  };
  if (!lists.is_object() || !usable(lists.value("prompt", nlohmann::json())) || !usable(lists.value("output", nlohmann::json())))
    return bad_file(path + ": no lists 'prompt' and 'output' of lengths above 0" + (list.empty() ? " (name one: FILE:LIST)" : " in '" + list + "'"));
  const auto prompts = lists["prompt"].get<std::vector<int>>(), outputs = lists["output"].get<std::vector<int>>();
  if (prompts.size() != outputs.size() || prompts.empty()) return bad_file(path + ": 'prompt' and 'output' differ in length, or are empty");
  std::vector<RequestLengths> out;
  for (size_t i = 0; i < prompts.size(); ++i) out.push_back({prompts[i], outputs[i]});
  return out;
}

Result<std::vector<RequestLengths>> draw_lengths(const std::string& prompt, const std::string& output, int requests, uint64_t seed) {
  if (requests < 1 || requests > 1'000'000) return invalid(std::to_string(requests) + " is outside 1..1000000", "--requests");
  SLUICE_ASSIGN(Distribution p, Distribution::parse(prompt, "--prompt-tokens"));
  SLUICE_ASSIGN(Distribution o, Distribution::parse(output, "--output-tokens"));
  Rng rng(seed);
  std::vector<RequestLengths> out;
  for (int i = 0; i < requests; ++i) {
    const int n = p.draw(rng);
    out.push_back({n, o.draw(rng)});
  }
  return out;
}

Result<ThroughputReport> bench_throughput(const LoadedModel& m, const std::vector<RequestLengths>& requests, uint64_t seed) {
  for (const RequestLengths& r : requests) SLUICE_TRY(sched::Scheduler::fits(m.scheduler, r.prompt, r.output));
  const SteadyClock clock;
  engine::EngineOptions options;
  options.scheduler = m.scheduler;
  options.max_queue = requests.size();
  SLUICE_ASSIGN(auto executor, m.make_executor());
  SLUICE_TRY(executor->warm_up());
  engine::Engine engine(options, m.tokenizer, std::move(executor), &clock);
  ThroughputReport report;
  std::vector<Times> times(requests.size());
  std::vector<sched::Submission> submissions;
  Gate gate(int(requests.size()));
  for (size_t i = 0; i < requests.size(); ++i) {
    times[i].tokens.reserve(size_t(requests[i].output));
    report.prompt_tokens += requests[i].prompt;
    submissions.push_back(make_submission(requests[i], m.scheduler.vocab, seed, i));
    submissions.back().sink = std::make_shared<TimedSink>(&times[i], &gate, &clock);
  }
  SLUICE_TRY(warm_up(engine, clock, m.scheduler.vocab, requests, seed + 1));
  const uint64_t steps = engine.stats().steps;
  const TimeUs begin = clock.now_us();
  for (size_t i = 0; i < submissions.size(); ++i) {
    times[i].submitted = clock.now_us();
    SLUICE_TRY(engine.submit(std::move(submissions[i])));
  }
  gate.wait();
  report.requests = int(requests.size());
  report.planned_bytes = m.memory.free_before ? m.memory.total() : 0;
  report.used_bytes = used_memory(m);
  report.steps = engine.stats().steps - steps;
  report.preemptions = engine.stats().preemptions;
  summarise(report, times, begin);
  return report;
}

}  // namespace sluice::lab
