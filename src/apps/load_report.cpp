#include "apps/load_report.h"

#include <cstdio>
#include <utility>

namespace sluice::apps {
namespace {

nlohmann::ordered_json json_of(const lab::Percentiles& p) { return {{"p50", p.p50}, {"p90", p.p90}, {"p99", p.p99}, {"mean", p.mean}}; }

}  // namespace

nlohmann::ordered_json load_report_json(const lab::LoadReport& r) {
  return {{"requests", r.requests}, {"ok", r.ok}, {"rejected", r.rejected}, {"failed", r.failed}, {"duration_s", r.duration_s},
          {"output_tok_s", r.output_tok_s}, {"total_tok_s", r.total_tok_s}, {"prompt_tokens", r.prompt_tokens}, {"output_tokens", r.output_tokens},
          {"ttft_ms", json_of(r.ttft_ms)}, {"tpot_ms", json_of(r.tpot_ms)}, {"itl_ms", json_of(r.itl_ms)}, {"e2e_ms", json_of(r.e2e_ms)},
          {"goodput_rps", r.goodput_rps}, {"first_error", r.first_error}};
}

void print_percentiles(const lab::LoadReport& r) {
  std::printf("%-28s %10s %10s %10s %10s\n", "ms", "p50", "p90", "p99", "mean");
  const std::pair<const char*, lab::Percentiles> lines[] = {
      {"time to first token", r.ttft_ms}, {"time per output token", r.tpot_ms}, {"gap between tokens", r.itl_ms}, {"end to end", r.e2e_ms}};
  for (const auto& [name, p] : lines) std::printf("%-28s %10.1f %10.1f %10.1f %10.1f\n", name, p.p50, p.p90, p.p99, p.mean);
}

}  // namespace sluice::apps
