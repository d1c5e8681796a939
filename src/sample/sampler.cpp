#include "sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "sample/noise.h"
#include "sample/token_mass.h"

namespace sluice::sample {
namespace {

constexpr float kNegInf = -std::numeric_limits<float>::infinity();

// Keeps what comes no later than `last`.
struct Cut {
  Candidate last{kNegInf, std::numeric_limits<int32_t>::max()};
  bool keeps(float x, int32_t t) const { return !(last < Candidate{x, t}); }
};

// Of a caller that keeps none.
Scratch& own_scratch() {
  thread_local Scratch s;
  return s;
}

// A row's logits and the largest of each of its blocks.
class Row {
 public:
  Row(std::span<float> x, float factor, const Scan& scan, Scratch& scratch) : x_(x), scan_(scan), scratch_(scratch), maxima_(scratch.maxima) {
    maxima_.resize(scan_blocks(x.size()));
    scan.scale(x.data(), x.size(), factor, maxima_.data());
    for (float m : maxima_) max_ = m > max_ ? m : max_;
  }
  float max() const { return max_; }

  // The smallest token of the largest logit; 0 where every logit is NaN.
  int32_t argmax() const {
    for (size_t b = 0; b < maxima_.size(); ++b)
      if (maxima_[b] == max_)
        for (size_t t = b * kScanBlock; t < end_of(b); ++t)
          if (x_[t] == max_) return int32_t(t);
    return 0;
  }
  // Every token of at least `floor`.
  std::vector<Candidate>& from(float floor) const {
    auto& out = scratch_.candidates;
    out.clear();
    for (size_t b = 0; b < maxima_.size(); ++b)
      if (maxima_[b] >= floor)
        for (size_t t = b * kScanBlock; t < end_of(b); ++t)
          if (x_[t] >= floor) out.push_back({x_[t], int32_t(t)});
    return out;
  }
  // The k most likely tokens, the last of them at the end; fewer where logits are NaN. What stands among the k largest is no
  // smaller than the k-th largest of the blocks' maxima, since those are k tokens already.
  std::vector<Candidate>& top(size_t k) const {
    float floor = kNegInf;
    if (k < maxima_.size()) {
      auto& tops = scratch_.tops;
      tops = maxima_;
      std::nth_element(tops.begin(), tops.begin() + ptrdiff_t(k) - 1, tops.end(), std::greater<>());
      floor = tops[k - 1];
    }
    auto& out = from(floor);
    if (k < out.size()) {
      std::nth_element(out.begin(), out.begin() + ptrdiff_t(k) - 1, out.end());
      out.resize(k);
    }
    return out;
  }
  // Of all tokens; blocks too far below the maximum weigh exactly nothing.
  uint64_t mass() const {
    uint64_t sum = 0;
    const auto weighs = [&](size_t b) { return maxima_[b] >= max_ - kWeightless; };
    for (size_t b = 0; b < maxima_.size(); ++b) {
      const size_t begin = b;
      while (b < maxima_.size() && weighs(b)) ++b;
      sum += scan_.mass(x_.data() + begin * kScanBlock, std::min(b * kScanBlock, x_.size()) - begin * kScanBlock, max_);
    }
    return sum;
  }
  // Where the mass of the tokens in falling order reaches `share` of all.
  Cut share(float share) const {
    const double wanted = double(share) * double(mass());
    for (float depth = 4;; depth *= 2) {  // deeper until the tokens found are enough
      const bool all = depth > kWeightless;
      auto& found = from(all ? kNegInf : max_ - depth);
      if (all || double(mass_of(found)) >= wanted) return cut_of(found, wanted);
    }
  }
  uint64_t mass_of(std::span<const Candidate> tokens) const {
    uint64_t sum = 0;
    for (const Candidate& c : tokens) sum += token_mass(c.value, max_);
    return sum;
  }
  // Where the mass of these tokens in falling order reaches `wanted`; halves what is unsure until it is short enough to sort.
  Cut cut_of(std::span<Candidate> tokens, double wanted) const {
    uint64_t before = 0;
    while (tokens.size() > 64) {
      const size_t half = tokens.size() / 2;
      std::nth_element(tokens.begin(), tokens.begin() + ptrdiff_t(half), tokens.end());
      const uint64_t upper = mass_of(tokens.first(half));
      if (double(before + upper) >= wanted) {
        tokens = tokens.first(half);
      } else {
        before += upper;
        tokens = tokens.subspan(half);
      }
    }
    std::sort(tokens.begin(), tokens.end());
    for (const Candidate& c : tokens)
      if (before += token_mass(c.value, max_); double(before) >= wanted) return {c};
    return tokens.empty() ? Cut{} : Cut{tokens.back()};
  }
  // The token that wins with noise added, of those that are at least `floor` and that the cut keeps; -1: none.
  int32_t winner(const SampleRow& p, float floor, const Cut& cut) const {
    Noise noise(uint64_t{p.seed_high} << 32 | p.seed_low, p.choice, p.position);
    Candidate best{kNegInf, -1};
    const auto consider = [&](size_t begin, size_t end) {
      for (size_t t = begin; t < end; ++t) {
        if (!(x_[t] >= floor) || !cut.keeps(x_[t], int32_t(t))) continue;
        const Candidate c{x_[t] + noise.gumbel(int32_t(t)), int32_t(t)};
        if (best.token < 0 || c < best) best = c;
      }
    };
    // The leader's block first: what it gives spares most others a look at more than their random bits.
    for (size_t b = 0; b < maxima_.size(); ++b)
      if (maxima_[b] == max_) {
        consider(b * kScanBlock, end_of(b));
        break;
      }
    uint32_t groups[kScanBlock / 4];
    for (size_t b = 0; b < maxima_.size(); ++b) {
      if (!(maxima_[b] >= floor) || best.value - maxima_[b] > kMaxGumbel) continue;
      const uint32_t needed = bits_needed(best.value - maxima_[b]);
      const size_t n = scan_.groups(noise, uint32_t(b * kScanBlock / 4), kScanBlock / 4, needed, groups);
      for (size_t i = 0; i < n; ++i) consider(size_t(groups[i]) * 4, std::min(end_of(b), size_t(groups[i]) * 4 + 4));
    }
    return best.token;
  }

 private:
  static constexpr float kWeightless = 32;  // exp(-32) is below half a unit of mass
  static constexpr float kMaxGumbel = 17;   // of a uniform below 1 - 2^-24
  size_t end_of(size_t block) const { return std::min(x_.size(), (block + 1) * kScanBlock); }
  // Random bits below this give noise below `distance`; on the safe side, whatever the roundings of noise and sum.
  static uint32_t bits_needed(float distance) {
    if (!(distance > -2)) return 0;
    const double u = std::exp(-std::exp(-(double(distance) - 1e-3 * (1 + std::abs(double(distance))))));
    return uint32_t(std::max(0.0, u * 0x1p32 - 1024));
  }

  std::span<const float> x_;
  const Scan& scan_;
  Scratch& scratch_;
  std::vector<float>& maxima_;
  float max_ = kNegInf;
};

void apply(std::span<float> x, std::span<LogitChange> changes) {
  for (LogitChange& c : changes) {
    float& v = x[c.token];
    c.raw = v;
    if (c.divide != 1) v = v > 0 ? v / c.divide : v * c.divide;
    v -= c.subtract;
    v += c.add;
  }
}

// What top_k and top_p keep.
Cut truncation(const Row& row, size_t vocab, const SampleRow& p) {
  Cut cut;
  if (p.top_k > 0 && size_t(p.top_k) < vocab) {
    auto& kept = row.top(size_t(p.top_k));
    if (p.top_p < 1) cut = row.cut_of(kept, double(p.top_p) * double(row.mass_of(kept)));
    else if (!kept.empty()) cut = {*std::max_element(kept.begin(), kept.end())};
  } else if (p.top_p < 1) {
    cut = row.share(p.top_p);
  }
  return cut;
}

float least_kept(const Row& row, const Cut& cut, const SampleRow& p) {
  return std::max(cut.last.value, p.log_min_p < 0 ? row.max() + p.log_min_p : kNegInf);
}

int32_t choose(std::span<float> x, const SampleRow& p, const Scan& scan, Scratch& scratch) {
  const Row row(x, p.inverse_temperature == 0 ? 1.0f : p.inverse_temperature, scan, scratch);
  if (p.inverse_temperature == 0) return row.argmax();
  const Cut cut = truncation(row, x.size(), p);
  const float floor = least_kept(row, cut, p);
  const int32_t token = row.winner(p, floor, cut);
  return token >= 0 ? token : row.argmax();  // no comparison holds when every logit is NaN
}

}  // namespace

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
                 std::span<const int32_t> banned, int32_t vocab, std::vector<LogitChange>& out, std::span<const int32_t> drafts) {
  const bool penalises = p.repetition_penalty != 1 || p.presence_penalty != 0 || p.frequency_penalty != 0;
  if (!penalises && p.logit_bias.empty() && banned.empty()) return;
  thread_local std::vector<int32_t> index;  // 1 + where a token's change is, from `begin` on; all zero between uses
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
      for (const auto part : {history, drafts})
        for (int32_t t : part) change(t).divide = p.repetition_penalty;
    for (const auto part : {history.subspan(size_t(prompt_tokens)), drafts})
      for (int32_t t : part) change(t).add += 1;  // a count, for now
    for (LogitChange& c : std::span(out).subspan(begin)) {
      if (c.add > 0) c.subtract = p.presence_penalty + p.frequency_penalty * c.add;
      c.add = 0;
    }
  }
  for (const auto& [token, bias] : p.logit_bias) change(token).add += bias;
  for (int32_t t : banned) change(t).add = kNegInf;
  for (const LogitChange& c : std::span(out).subspan(begin)) index[size_t(c.token)] = 0;
}

void Scratch::reserve(size_t vocab) {
  maxima.reserve(scan_blocks(vocab));
  tops.reserve(scan_blocks(vocab));
  candidates.reserve(vocab);
  kept.reserve(vocab);
}

SampledRow sample_row(std::span<float> logits, const SampleRow& row, std::span<LogitChange> changes, TokenLogprob* top, const Scan& scan) {
  return sample_row(logits, row, changes, top, scan, own_scratch());
}

SampledRow sample_row(std::span<float> logits, const SampleRow& row, std::span<LogitChange> changes, TokenLogprob* top,
                      const Scan& scan, Scratch& scratch) {
  SampledRow out;
  const bool scores = row.target >= 0, wants = scores || row.num_logprobs >= 0;
  double lse = 0;
  if (wants) {
    const Row raw(logits, 1.0f, scan, scratch);
    lse = double(raw.max()) + std::log(double(raw.mass()) / kMassUnits);
    if (row.num_logprobs > 0) {
      auto& likely = raw.top(size_t(row.num_logprobs));
      std::sort(likely.begin(), likely.end());
      for (const Candidate& c : likely) *top++ = {c.token, float(double(c.value) - lse)};
    }
  }
  if (scores) {
    out.token = row.target;
    out.logprob = float(double(logits[row.target]) - lse);
    return out;
  }
  float raw = 0;  // the chain overwrites the logits, by temperature at the end
  apply(logits, changes);
  if (wants && row.inverse_temperature != 0) {
    scratch.kept.assign(logits.begin(), logits.end());
    out.token = choose(logits, row, scan, scratch);
    raw = scratch.kept[size_t(out.token)];
  } else {
    out.token = choose(logits, row, scan, scratch);
    raw = logits[out.token];
  }
  if (!wants) return out;
  for (const LogitChange& c : changes)
    if (c.token == out.token) raw = c.raw;
  out.logprob = float(double(raw) - lse);
  return out;
}

void chain_probabilities(std::span<float> logits, const SampleRow& p, std::span<LogitChange> changes, const Scan& scan) {
  apply(logits, changes);
  const Row row(logits, p.inverse_temperature == 0 ? 1.0f : p.inverse_temperature, scan, own_scratch());
  const int32_t greedy = p.inverse_temperature == 0 ? row.argmax() : -1;
  const Cut cut = greedy >= 0 ? Cut{} : truncation(row, logits.size(), p);
  const float floor = least_kept(row, cut, p);
  double sum = 0;
  for (size_t t = 0; t < logits.size(); ++t) {
    const bool keeps = greedy >= 0 ? int32_t(t) == greedy : logits[t] >= floor && cut.keeps(logits[t], int32_t(t));
    logits[t] = keeps ? std::exp(logits[t] - row.max()) : 0;
    sum += double(logits[t]);
  }
  for (float& x : logits) x = float(double(x) / sum);
}

}  // namespace sluice::sample
