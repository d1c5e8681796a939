#include "sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/portable_math.h"
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

void top_logprobs(std::span<const float> logits, double lse, int32_t num_top, TokenLogprob* top) {
  if (num_top <= 0) return;
  auto& order = scratch().order;
  order.resize(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = int32_t(i);
  const size_t k = std::min(size_t(num_top), order.size());
  std::partial_sort(order.begin(), order.begin() + k, order.end(), Falling{logits});
  for (size_t i = 0; i < k; ++i) top[i] = {order[i], float(double(logits[order[i]]) - lse)};
}

void apply(std::span<float> x, std::span<LogitChange> changes) {
  for (LogitChange& c : changes) {
    float& v = x[c.token];
    c.raw = v;
    if (c.divide != 1) v = v > 0 ? v / c.divide : v * c.divide;
    v -= c.subtract;
    v += c.add;
  }
}

// Leaves in order[0..n) the tokens that top_k, top_p and min_p keep, most likely first. x is logits / T.
size_t truncate(std::span<const float> x, const SampleRow& p, std::vector<int32_t>& order) {
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
    uint64_t total = 0, mass = 0;
    for (size_t i = 0; i < kept; ++i) total += token_mass(x[order[i]], max);
    const double wanted = double(p.top_p) * double(total);
    size_t sorted = 0, n = 0;
    while (n < kept && double(mass) < wanted) {
      if (n == sorted) {
        const size_t next = std::min(kept, std::max<size_t>(256, sorted * 8));
        std::partial_sort(order.begin() + sorted, order.begin() + next, order.begin() + kept, falling);
        sorted = next;
      }
      mass += token_mass(x[order[n++]], max);
    }
    kept = std::max<size_t>(n, 1);
  }
  if (p.log_min_p < 0) {
    const float floor = max + p.log_min_p;
    const auto end = std::partition(order.begin(), order.begin() + kept, [&](int32_t t) { return x[t] >= floor; });
    kept = std::max<size_t>(size_t(end - order.begin()), 1);
  }
  return kept;
}

int32_t choose(std::span<float> x, const SampleRow& p) {
  if (p.inverse_temperature == 0) return argmax(x);
  for (float& v : x) v *= p.inverse_temperature;
  Noise noise(uint64_t{p.seed_high} << 32 | p.seed_low, p.choice, p.position);
  int32_t best = -1;
  float best_value = kNegInf;
  // Equal values go to the smaller id, so the order in which candidates come does not matter.
  auto consider = [&](int32_t t) {
    if (x[t] + noise.gumbel_bound(t) < best_value) return;
    const float v = x[t] + noise.gumbel(t);
    if (best < 0 || v > best_value || (v == best_value && t < best)) {
      best = t;
      best_value = v;
    }
  };
  const bool truncates = (p.top_k > 0 && size_t(p.top_k) < x.size()) || p.top_p < 1 || p.log_min_p < 0;
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

uint64_t token_mass(float x, float max) { return uint64_t(portable_exp(x - max) * 0x1p40f); }

SampleRow make_row(const SamplingParams& p, int64_t position) {
  SampleRow r;
  r.inverse_temperature = p.temperature == 0 ? 0 : 1.0f / p.temperature;
  r.top_k = p.top_k;
  r.top_p = p.top_p;
  r.log_min_p = p.min_p > 0 ? std::log(p.min_p) : 0;
  r.seed_low = uint32_t(p.seed);
  r.seed_high = uint32_t(p.seed >> 32);
  r.choice = p.choice;
  r.position = uint32_t(position);
  r.num_logprobs = p.num_logprobs;
  return r;
}

void add_changes(const SamplingParams& p, std::span<const int32_t> history, int32_t prompt_tokens,
                 std::span<const int32_t> banned, int32_t vocab, std::vector<LogitChange>& out) {
  const bool penalises = p.repetition_penalty != 1 || p.presence_penalty != 0 || p.frequency_penalty != 0;
  if (!penalises && p.logit_bias.empty() && banned.empty()) return;
  auto& index = scratch().counts;  // 1 + where a token's change is, from `begin` on
  if (index.size() < size_t(vocab)) index.resize(size_t(vocab), 0);
  const size_t begin = out.size();
  const auto change = [&](int32_t token) -> LogitChange& {
    int32_t& at = index[size_t(token)];
    if (at == 0) {
      out.emplace_back().token = token;
      at = int32_t(out.size() - begin);
    }
    return out[begin + size_t(at) - 1];
  };
  if (penalises) {
    // Repetition looks at prompt and output, once a token; presence and frequency at output alone.
    if (p.repetition_penalty != 1)
      for (int32_t t : history) change(t).divide = p.repetition_penalty;
    for (int32_t t : history.subspan(size_t(prompt_tokens))) change(t).add += 1;  // a count, for now
    for (LogitChange& c : std::span(out).subspan(begin)) {
      if (c.add > 0) c.subtract = p.presence_penalty + p.frequency_penalty * c.add;
      c.add = 0;
    }
  }
  for (const auto& [token, bias] : p.logit_bias) change(token).add += bias;
  for (int32_t t : banned) change(t).add = kNegInf;
  for (const LogitChange& c : std::span(out).subspan(begin)) index[size_t(c.token)] = 0;
}

SampledRow sample_row(std::span<float> logits, const SampleRow& row, std::span<LogitChange> changes, TokenLogprob* top) {
  SampledRow out;
  const bool scores = row.target >= 0, wants = scores || row.num_logprobs >= 0;
  const double lse = wants ? log_sum_exp(logits) : 0;
  top_logprobs(logits, lse, row.num_logprobs, top);
  if (scores) {
    out.token = row.target;
    out.logprob = float(double(logits[row.target]) - lse);
    return out;
  }
  float raw = 0;  // the chain overwrites the logits, by temperature at the end
  apply(logits, changes);
  if (wants && row.inverse_temperature != 0) {
    thread_local std::vector<float> kept;
    kept.assign(logits.begin(), logits.end());
    out.token = choose(logits, row);
    raw = kept[size_t(out.token)];
  } else {
    out.token = choose(logits, row);
    raw = logits[out.token];
  }
  if (!wants) return out;
  for (const LogitChange& c : changes)
    if (c.token == out.token) raw = c.raw;
  out.logprob = float(double(raw) - lse);
  return out;
}

}  // namespace sluice::sample
