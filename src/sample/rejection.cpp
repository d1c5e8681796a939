#include "sample/rejection.h"

#include <algorithm>

#include "base/rng.h"

namespace sluice::sample {
namespace {

// Beside Noise::kDomain: uniform numbers that decide, and that draw.
constexpr uint32_t kAccepts = 0x0ACCE97u, kReplaces = 0x4E97ACEu, kDraws = 0xD4A35u;

double uniform(const SamplingParams& params, int64_t position, uint32_t domain) {
  const auto words = philox4x32({0, uint32_t(position), uint32_t(params.choice), domain}, {uint32_t(params.seed), uint32_t(params.seed >> 32)});
  return (double(words[0]) * 0x1p32 + double(words[1]) + 0.5) * 0x1p-64;
}

// The token where the running sum of weight(t) passes a share `u` of `total`.
template <class Weight>
int32_t at_share(size_t n, double u, double total, Weight weight) {
  double left = u * total;
  int32_t last = 0;
  for (size_t t = 0; t < n; ++t) {
    const double w = weight(t);
    if (w <= 0) continue;
    last = int32_t(t);
    if ((left -= w) < 0) break;
  }
  return last;
}

}  // namespace

int32_t draw_from(std::span<const float> p, const SamplingParams& params, int64_t position, uint32_t stream) {
  double total = 0;
  for (const float x : p) total += double(x);
  return at_share(p.size(), uniform(params, position, kDraws + stream), total, [&](size_t t) { return double(p[t]); });
}

RejectionOutcome accept_or_replace(std::span<const float> p, std::span<const float> q, int32_t draft, const SamplingParams& params, int64_t position) {
  const size_t d = size_t(draft);
  if (uniform(params, position, kAccepts) * double(q[d]) < double(p[d])) return {true, draft};
  const auto over = [&](size_t t) { return std::max(0.0, double(p[t]) - double(q[t])); };
  double total = 0;
  for (size_t t = 0; t < p.size(); ++t) total += over(t);
  return {false, at_share(p.size(), uniform(params, position, kReplaces), total, over)};
}

RejectionOutcome accept_or_replace(std::span<const float> p, int32_t draft, const SamplingParams& params, int64_t position) {
  if (uniform(params, position, kAccepts) < double(p[size_t(draft)])) return {true, draft};
  const auto others = [&](size_t t) { return t == size_t(draft) ? 0.0 : double(p[t]); };
  double total = 0;
  for (size_t t = 0; t < p.size(); ++t) total += others(t);
  return {false, at_share(p.size(), uniform(params, position, kReplaces), total, others)};
}

double rejection_acceptance(std::span<const float> p, std::span<const float> q) {
  double sum = 0;
  for (size_t t = 0; t < p.size(); ++t) sum += double(std::min(p[t], q[t]));
  return sum;
}

}  // namespace sluice::sample
