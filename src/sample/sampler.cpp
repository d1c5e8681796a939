#include "sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "sample/noise.h"

namespace sluice::sample {
namespace {

constexpr float kNegInf = -std::numeric_limits<float>::infinity();

// Larger logit first; ties by smaller id, so that an order exists on every machine.
struct Falling {
  std::span<const float> x;
  bool operator()(int32_t a, int32_t b) const { return x[a] != x[b] ? x[a] > x[b] : a < b; }
};

int32_t argmax(std::span<const float> x) {
  int32_t best = 0;
  for (int32_t i = 1; i < int32_t(x.size()); ++i)
    if (x[i] > x[best]) best = i;
  return best;
}

struct Scratch {
  std::vector<int32_t> order;
  std::vector<int32_t> counts;  // by token; all zero between uses
};
Scratch& scratch() {
  thread_local Scratch s;
  return s;
}

std::vector<TokenLogprob> top_logprobs(std::span<const float> logits, double lse, int32_t num_top) {
  std::vector<TokenLogprob> top;
  if (num_top <= 0) return top;
  auto& order = scratch().order;
  order.resize(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = int32_t(i);
  const size_t k = std::min(size_t(num_top), order.size());
  std::partial_sort(order.begin(), order.begin() + k, order.end(), Falling{logits});
  for (size_t i = 0; i < k; ++i) top.push_back({order[i], float(double(logits[order[i]]) - lse)});
  return top;
}

void apply_penalties(const SampleInput& in) {
  const SamplingParams& p = *in.params;
  auto x = in.logits;
  if (p.repetition_penalty != 1 || p.presence_penalty != 0 || p.frequency_penalty != 0) {
    auto& counts = scratch().counts;
    if (counts.size() < x.size()) counts.resize(x.size(), 0);
    // Repetition looks at prompt and output; presence and frequency at output alone. A visited token is marked once.
    for (size_t i = 0; i < in.history.size(); ++i) {
      const int32_t t = in.history[i];
      if (p.repetition_penalty != 1 && counts[t] == 0) {
        x[t] = x[t] > 0 ? x[t] / p.repetition_penalty : x[t] * p.repetition_penalty;
        counts[t] = -1;
      }
    }
    for (int32_t t : in.history) counts[t] = 0;
    for (size_t i = size_t(in.prompt_tokens); i < in.history.size(); ++i) ++counts[in.history[i]];
    for (size_t i = size_t(in.prompt_tokens); i < in.history.size(); ++i) {
      const int32_t t = in.history[i];
      if (counts[t] == 0) continue;
      x[t] -= p.presence_penalty + p.frequency_penalty * float(counts[t]);
      counts[t] = 0;
    }
  }
  for (const auto& [token, bias] : p.logit_bias) x[token] += bias;
  for (int32_t t : in.banned) x[t] = kNegInf;
}

// Leaves in order[0..n) the tokens that top_k, top_p and min_p keep, most likely first. x is logits / T.
size_t truncate(std::span<const float> x, const SamplingParams& p, std::vector<int32_t>& order) {
  order.resize(x.size());
  for (size_t i = 0; i < x.size(); ++i) order[i] = int32_t(i);
  const Falling falling{x};
  size_t kept = order.size();
  if (p.top_k > 0 && size_t(p.top_k) < kept) {
    kept = size_t(p.top_k);
    std::partial_sort(order.begin(), order.begin() + kept, order.end(), falling);
  } else {
    std::iter_swap(order.begin(), std::min_element(order.begin(), order.end(), falling));
  }
  const float max = x[order[0]];
  if (p.top_p < 1) {
    // Sort only as far as the mass reaches: 256 tokens, then 8 times as many, until top_p is covered.
    double total = 0;
    for (size_t i = 0; i < kept; ++i) total += std::exp(double(x[order[i]] - max));
    const double wanted = double(p.top_p) * total;
    double mass = 0;
    size_t sorted = 0, n = 0;
    while (n < kept && mass < wanted) {
      if (n == sorted) {
        const size_t next = std::min(kept, std::max<size_t>(256, sorted * 8));
        std::partial_sort(order.begin() + sorted, order.begin() + next, order.begin() + kept, falling);
        sorted = next;
      }
      mass += std::exp(double(x[order[n++]] - max));
    }
    kept = std::max<size_t>(n, 1);
  }
  if (p.min_p > 0) {
    const float floor = max + std::log(p.min_p);
    const auto end = std::partition(order.begin(), order.begin() + kept, [&](int32_t t) { return x[t] >= floor; });
    kept = std::max<size_t>(size_t(end - order.begin()), 1);
  }
  return kept;
}

int32_t choose(const SampleInput& in) {
  const SamplingParams& p = *in.params;
  auto x = in.logits;
  if (p.temperature == 0) return argmax(x);
  const float inverse = 1.0f / p.temperature;
  for (float& v : x) v *= inverse;
  Noise noise(p.seed, p.choice, in.position);
  int32_t best = -1;
  float best_value = kNegInf;
  // Equal values go to the smaller id, so the order in which candidates come does not matter.
  auto consider = [&](int32_t t) {
    const float v = x[t] + noise.gumbel(t);
    if (best < 0 || v > best_value || (v == best_value && t < best)) {
      best = t;
      best_value = v;
    }
  };
  const bool truncates = (p.top_k > 0 && size_t(p.top_k) < x.size()) || p.top_p < 1 || p.min_p > 0;
  if (!truncates) {
    // Noise never exceeds kMaxGumbel, so a token that far below the leader cannot win: skip its logarithms.
    constexpr float kMaxGumbel = 17.0f, kMinGumbel = -2.9f;  // of a uniform in (2^-24, 1 - 2^-24)
    const float floor = x[argmax(x)] - (kMaxGumbel - kMinGumbel);
    for (int32_t t = 0; t < int32_t(x.size()); ++t)
      if (x[t] >= floor) consider(t);
  } else {
    auto& order = scratch().order;
    const size_t kept = truncate(x, p, order);
    std::sort(order.begin(), order.begin() + kept);  // four neighbours share one noise block
    for (size_t i = 0; i < kept; ++i) consider(order[i]);
  }
  return best >= 0 ? best : argmax(x);  // no comparison holds when every logit is NaN
}

}  // namespace

double log_sum_exp(std::span<const float> x) {
  float max = kNegInf;
  for (float v : x) max = std::max(max, v);
  double sum = 0;
  for (float v : x) sum += std::exp(double(v - max));
  return double(max) + std::log(sum);
}

SampledToken sample(const SampleInput& in) {
  const SamplingParams& p = *in.params;
  SampledToken out;
  if (p.num_logprobs < 0) {
    if (!p.is_plain_greedy() || !in.banned.empty()) apply_penalties(in);
    out.token = choose(in);
    return out;
  }
  const double lse = log_sum_exp(in.logits);
  out.top = top_logprobs(in.logits, lse, p.num_logprobs);
  thread_local std::vector<float> raw;  // the chain overwrites the logits; the chosen token's raw value is needed after
  raw.assign(in.logits.begin(), in.logits.end());
  apply_penalties(in);
  out.token = choose(in);
  out.logprob = float(double(raw[out.token]) - lse);
  return out;
}

SampledToken score(std::span<const float> logits, int32_t target, int32_t num_top) {
  SampledToken out;
  const double lse = log_sum_exp(logits);
  out.token = target;
  out.logprob = float(double(logits[target]) - lse);
  out.top = top_logprobs(logits, lse, num_top);
  return out;
}

}  // namespace sluice::sample
