#include "apps/bench_throughput.h"

#include <algorithm>
#include <cstdio>
#include <iostream>

#include <nlohmann/json.hpp>

#include "apps/model_flags.h"
#include "lab/bench_throughput.h"

namespace sluice::apps {
namespace {

Result<std::vector<lab::RequestLengths>> wanted_requests(const ThroughputFlags& f) {
  if (f.lengths.empty())
    return lab::draw_lengths(f.generator.prompt_tokens, f.generator.output_tokens, f.generator.requests, f.generator.seed);
  SLUICE_ASSIGN(auto requests, lab::read_lengths(f.lengths));
  if (f.limit_requests) requests.resize(std::min(requests.size(), size_t(std::max(1, f.generator.requests))));
  return requests;
}

void print_json(const lab::ThroughputReport& r, int max_sequences) {
  std::cout << nlohmann::ordered_json{
      {"requests", r.requests}, {"failed", r.failed}, {"max_sequences", max_sequences},
      {"prompt_tokens", r.prompt_tokens}, {"output_tokens", r.output_tokens}, {"duration_s", r.duration_s},
      {"output_tok_s", r.output_tok_s}, {"total_tok_s", r.total_tok_s}, {"steady_tok_s", r.steady_tok_s},
      {"steady_step_ms", r.steady_step_ms}, {"live_peak", r.live_peak}, {"live_mean", r.live_mean}, {"steps", r.steps}, {"preemptions", r.preemptions},
      {"ttft_ms", {{"p50", r.ttft_ms.p50}, {"p90", r.ttft_ms.p90}, {"p99", r.ttft_ms.p99}}},
      {"planned_bytes", r.planned_bytes}, {"used_bytes", r.used_bytes}, {"first_error", r.first_error}}.dump() << "\n";
}

void print_text(const lab::ThroughputReport& r, int max_sequences) {
  std::printf("%d requests (%ld tokens in, %ld out) in %.2f s, at most %d at once: %d failed, %lu steps, %lu preemptions\n",
              r.requests, long(r.prompt_tokens), long(r.output_tokens), r.duration_s, max_sequences, r.failed,
              static_cast<unsigned long>(r.steps), static_cast<unsigned long>(r.preemptions));
  std::printf("%.1f output tokens/s, %.1f in all; %.1f sequences live, %d at most\n", r.output_tok_s, r.total_tok_s, r.live_mean, r.live_peak);
  if (r.steady_tok_s > 0) std::printf("while all decode: %.1f tokens/s, %.3f ms a step\n", r.steady_tok_s, r.steady_step_ms);
  std::printf("time to first token: p50 %.1f, p99 %.1f ms\n", r.ttft_ms.p50, r.ttft_ms.p99);
  if (r.used_bytes) std::printf("device memory: %.0f MB planned, %.0f MB used\n", double(r.planned_bytes) * 1e-6, double(r.used_bytes) * 1e-6);
  if (!r.first_error.empty()) std::printf("first error: %s\n", r.first_error.c_str());
}

}  // namespace

Result<int> bench_throughput(ThroughputFlags f) {
  SLUICE_ASSIGN(const auto requests, wanted_requests(f));
  if (f.load.max_sequences == 0) f.load.max_sequences = int(std::min<size_t>(requests.size(), 1024));
  SLUICE_ASSIGN(const lab::LoadedModel model, load_with_progress(f.load));
  SLUICE_ASSIGN(const lab::ThroughputReport r, lab::bench_throughput(model, requests, f.generator.seed));
  if (f.json) print_json(r, f.load.max_sequences);
  else print_text(r, f.load.max_sequences);
  return r.failed ? 1 : 0;
}

}  // namespace sluice::apps
