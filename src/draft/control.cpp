#include "draft/control.h"

#include <algorithm>
#include <numeric>

namespace sluice::draft {
namespace {

// Prices are measured to a few per cent: what promises less is left alone.
constexpr double kLeastGain = 1.01, kLeastModelGain = 1.02;
constexpr int kTile = 16;            // tokens
constexpr float kHopeless = 0.05f;   // a draft that stands so seldom is not worth a look at its price
constexpr int kPatience = 12;        // drafts without a better rate, over a step in the price, before giving up

}  // namespace

double Chances::gain(int k) const {
  double sum = 0, all = 1;
  for (int i = 0; i < std::min(k, count); ++i) sum += all *= double(of[i]);
  return sum;
}

double Control::rate(const Situation& now, double gain, int tokens, int64_t pairs, double draft_us) const {
  sched::StepShape shape = now.base;
  shape.tokens += tokens;
  shape.rows += tokens;
  shape.pairs += pairs;
  // Where sizes are not measured one by one, drafts are charged the whole tile of tokens that they begin.
  if (tokens > 0 && shape.tokens > StepPrice::kExact) shape.tokens = (shape.tokens + kTile - 1) / kTile * kTile;
  return (now.progress + gain) / (price_->predict(shape) + draft_us);
}

void Control::choose(const Situation& now, std::span<const Candidate> candidates, std::span<Choice> choices) {
  std::fill(choices.begin(), choices.end(), Choice{});
  if (!(price_->predict(now.base) > 0)) return;
  const double best = choose_lookups(now, candidates, choices);
  if (now.pass_us) choose_model(now, candidates, choices, best);
}

// The likeliest drafts first, as far as the rate rises.
double Control::choose_lookups(const Situation& now, std::span<const Candidate> candidates, std::span<Choice> choices) {
  drafts_.clear();
  for (size_t i = 0; i < candidates.size(); ++i) {
    float all = 1;
    for (int j = 0; j < candidates[i].lookup.count && (all *= candidates[i].lookup.of[j]) >= kHopeless; ++j) drafts_.push_back({all, int(i)});
  }
  // Equal ones stay in their order, so that a sequence's come one behind the other.
  std::stable_sort(drafts_.begin(), drafts_.end(), [](const Draft& a, const Draft& b) { return a.gain > b.gain; });
  const double without = rate(now, 0, 0, 0, 0);
  double best = without, gain = 0;
  size_t taken = 0;
  int64_t pairs = 0;
  for (size_t n = 0; n < drafts_.size() && n < taken + kPatience; ++n) {
    gain += double(drafts_[n].gain);
    pairs += candidates[size_t(drafts_[n].candidate)].length;
    const double r = rate(now, gain, int(n) + 1, pairs, 0);
    if (r <= best || r < kLeastGain * without) continue;
    best = r;
    taken = n + 1;
  }
  for (size_t n = 0; n < taken; ++n) ++choices[size_t(drafts_[n].candidate)].lookup;
  return best;
}

// One number of drafts for the sequences where the draft model gains most over what they have, the first 1, 2, 4, ... of them.
void Control::choose_model(const Situation& now, std::span<const Candidate> candidates, std::span<Choice> choices, double best) {
  order_.resize(candidates.size());
  std::iota(order_.begin(), order_.end(), 0);
  const auto lookup_gain = [&](int i) { return candidates[size_t(i)].lookup.gain(choices[size_t(i)].lookup); };
  const auto over = [&](int i) { return candidates[size_t(i)].model.gain(sched::kMaxDrafts) - lookup_gain(i); };
  std::stable_sort(order_.begin(), order_.end(), [&](int a, int b) { return over(a) > over(b); });
  double gain_kept = 0;   // of lookups, for those that keep them
  int tokens_kept = 0;
  int64_t pairs_kept = 0;
  for (size_t i = 0; i < candidates.size(); ++i) {
    gain_kept += lookup_gain(int(i));
    tokens_kept += choices[i].lookup;
    pairs_kept += choices[i].lookup * candidates[i].length;
  }
  int best_k = 0;
  size_t best_n = 0;
  double wanted = kLeastModelGain * best, catch_up = 0;
  int64_t cached = 0;
  for (size_t n = 1; n <= order_.size(); ++n) {
    const Candidate& last = candidates[size_t(order_[n - 1])];
    const Choice& had = choices[size_t(order_[n - 1])];
    if (last.model.count == 0 || over(order_[n - 1]) <= 0) break;
    gain_kept -= lookup_gain(order_[n - 1]);
    tokens_kept -= had.lookup;
    pairs_kept -= had.lookup * last.length;
    catch_up += last.catch_up_us;
    cached += last.length;
    if ((n & (n - 1)) != 0 && n != order_.size()) continue;
    const double pass = now.pass_us(int(n), cached);
    for (int k = 1; k <= sched::kMaxDrafts; ++k) {
      double gain = gain_kept;
      int tokens = tokens_kept, longest = 0;
      int64_t pairs = pairs_kept;
      for (size_t i = 0; i < n; ++i) {
        const Candidate& c = candidates[size_t(order_[i])];
        const int own = std::min(k, c.model.count);
        longest = std::max(longest, own);
        gain += c.model.gain(own);
        tokens += own;
        pairs += own * c.length;
      }
      if (longest < k) break;
      const double r = rate(now, gain, tokens, pairs, k * pass + catch_up);
      if (r <= wanted) continue;
      wanted = r;
      best_k = k;
      best_n = n;
    }
  }
  for (size_t i = 0; i < best_n; ++i) choices[size_t(order_[i])] = {0, std::min(best_k, candidates[size_t(order_[i])].model.count)};
}

}  // namespace sluice::draft
