// Speculation leaves a distribution alone: texts of three tokens of a tiny random model (logits are a table of the token before),
// drafted well, badly and always wrongly, against the exact distribution, which is computed apart in double. Chi-square over 1e5
// texts, for coupled sampling and for rejection.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>

#include "base/rng.h"
#include "sample/accept.h"
#include "sample/rejection.h"
#include "sample/sampler.h"

namespace sluice::sample {
namespace {

constexpr int kVocab = 24, kLength = 3, kDrafts = 2;
// A tenth of them where SLUICE_SEEDS asks for a short run.
const int kTexts = std::getenv("SLUICE_SEEDS") ? 10'000 : 100'000;

struct Table {
  std::vector<float> logits;  // [kVocab + 1, kVocab]: after each token; the last row begins a text
  explicit Table(uint64_t seed, const Table* near = nullptr, float distance = 1) {
    Rng rng(seed);
    for (int i = 0; i < (kVocab + 1) * kVocab; ++i) logits.push_back((near ? near->logits[size_t(i)] : 0) + distance * 1.5f * rng.normalish());
  }
  std::vector<float> after(int token) const {
    const auto begin = logits.begin() + std::ptrdiff_t(token < 0 ? kVocab : token) * kVocab;
    return {begin, begin + kVocab};
  }
};

// The chain in double, written for this test: temperature, top_k, top_p, min_p; ties do not occur.
std::vector<double> exact(const Table& table, int before, const SamplingParams& p) {
  std::vector<double> x;
  for (const float v : table.after(before)) x.push_back(double(v));
  for (const auto& [t, bias] : p.logit_bias) x[size_t(t)] += double(bias);
  std::vector<int> order(kVocab);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int a, int b) { return x[size_t(a)] > x[size_t(b)]; });
  std::vector<double> w(kVocab, 0);
  double kept = 0, sum = 0;
  const int k = p.top_k > 0 ? p.top_k : kVocab;
  for (int i = 0; i < k; ++i) kept += std::exp((x[size_t(order[size_t(i)])] - x[size_t(order[0])]) / double(p.temperature));
  for (int i = 0, mass = 1; i < k && mass; ++i) {
    const double one = std::exp((x[size_t(order[size_t(i)])] - x[size_t(order[0])]) / double(p.temperature));
    if (one >= double(p.min_p)) w[size_t(order[size_t(i)])] = one;
    sum += one;
    mass = sum < double(p.top_p) * kept;
  }
  const double total = std::accumulate(w.begin(), w.end(), 0.0);
  for (double& v : w) v /= total;
  return w;
}

SampleRow row_for(const SamplingParams& p, int64_t position, std::vector<LogitChange>& changes) {
  changes.clear();
  add_changes(p, {}, 0, {}, kVocab, changes);
  return make_row(p, position);
}

int32_t draw(const Table& table, int before, const SamplingParams& p, int64_t position) {
  std::vector<LogitChange> changes;
  const SampleRow row = row_for(p, position, changes);
  std::vector<float> x = table.after(before);
  return sample_row(x, row, changes, nullptr).token;
}

std::vector<float> probabilities(const Table& table, int before, const SamplingParams& p) {
  std::vector<LogitChange> changes;
  const SampleRow row = row_for(p, 0, changes);
  std::vector<float> x = table.after(before);
  chain_probabilities(x, row, changes);
  return x;
}

enum class Drafter { kGood, kBad, kWrong };

struct Models {
  Table target{1}, good{2, &target, 0.2f}, bad{3};
};

// One text by coupled sampling, kDrafts at a time.
std::vector<int32_t> coupled(const Models& m, Drafter drafter, const SamplingParams& p, int* accepted) {
  std::vector<int32_t> text;
  while (int(text.size()) < kLength) {
    std::vector<int32_t> drafts;
    for (int i = 0, before = text.empty() ? -1 : text.back(); i < kDrafts; ++i) {
      const int64_t position = int64_t(text.size()) + i;
      if (drafter == Drafter::kWrong) before = (draw(m.target, before, p, position) + 1) % kVocab;
      else before = draw(drafter == Drafter::kGood ? m.good : m.bad, before, p, position);
      drafts.push_back(before);
    }
    std::vector<SampledToken> drawn(kDrafts + 1);
    for (int i = 0; i <= kDrafts; ++i) {
      const int before = i > 0 ? drafts[size_t(i) - 1] : text.empty() ? -1 : text.back();
      drawn[size_t(i)].token = draw(m.target, before, p, int64_t(text.size()) + i);
    }
    const int a = accepted_prefix(drafts, drawn);
    *accepted += a;
    for (int i = 0; i <= a; ++i) text.push_back(drawn[size_t(i)].token);
  }
  text.resize(kLength);
  return text;
}

struct Distributions {
  std::vector<std::vector<float>> target, good, bad;
  explicit Distributions(const Models& m, const SamplingParams& p) {
    for (int t = 0; t <= kVocab; ++t) {
      const int before = t == kVocab ? -1 : t;
      target.push_back(probabilities(m.target, before, p));
      good.push_back(probabilities(m.good, before, p));
      bad.push_back(probabilities(m.bad, before, p));
    }
  }
  static size_t at(const std::vector<int32_t>& text) { return text.empty() ? size_t(kVocab) : size_t(text.back()); }
};

// The same by rejection, one draft at a time.
std::vector<int32_t> rejected(const Distributions& d, Drafter drafter, const SamplingParams& p, int* accepted) {
  std::vector<int32_t> text;
  while (int(text.size()) < kLength) {
    const size_t before = Distributions::at(text);
    const auto& target = d.target[before];
    std::vector<float> q = drafter == Drafter::kGood ? d.good[before] : d.bad[before];
    if (drafter == Drafter::kWrong) {  // sure of what the target likes least
      q.assign(kVocab, 0);
      q[size_t(std::min_element(target.begin(), target.end()) - target.begin())] = 1;
    }
    const int64_t position = int64_t(text.size());
    const RejectionOutcome r = accept_or_replace(target, q, draw_from(q, p, position, 1), p, position);
    *accepted += r.accepted;
    text.push_back(r.token);
  }
  return text;
}

// Upper tail of chi-square by Wilson and Hilferty: good to a few per cent of p, which is all that is asked.
double p_value(double chi, double freedom) {
  const double z = (std::cbrt(chi / freedom) - (1 - 2 / (9 * freedom))) / std::sqrt(2 / (9 * freedom));
  return 0.5 * std::erfc(z / std::sqrt(2.0));
}

double test_texts(const Table& target, const SamplingParams& p, const std::vector<int>& counts) {
  std::vector<std::vector<double>> after;
  for (int t = 0; t <= kVocab; ++t) after.push_back(exact(target, t == kVocab ? -1 : t, p));
  double chi = 0, rest_expected = 0, rest_seen = 0;
  int cells = 0;
  for (int a = 0; a < kVocab; ++a)
    for (int b = 0; b < kVocab; ++b)
      for (int c = 0; c < kVocab; ++c) {
        const double expected = kTexts * after[kVocab][size_t(a)] * after[size_t(a)][size_t(b)] * after[size_t(b)][size_t(c)];
        const int seen = counts[size_t((a * kVocab + b) * kVocab + c)];
        if (expected == 0) {
          EXPECT_EQ(seen, 0) << "a token that the chain drops";
        }
        if (expected < 5) {
          rest_expected += expected;
          rest_seen += seen;
          continue;
        }
        chi += (seen - expected) * (seen - expected) / expected;
        ++cells;
      }
  if (rest_expected >= 5) chi += (rest_seen - rest_expected) * (rest_seen - rest_expected) / rest_expected, ++cells;
  return p_value(chi, cells - 1);
}

TEST(Accept, TheDistributionIsTheTargetsWhateverIsDrafted) {
  std::vector<std::pair<const char*, SamplingParams>> chains(5);
  chains[0].first = "plain";
  chains[1] = {"temperature 0.7, top_k 9", {}};
  chains[1].second.temperature = 0.7f, chains[1].second.top_k = 9;
  chains[2] = {"top_p 0.85", {}};
  chains[2].second.top_p = 0.85f;
  chains[3] = {"temperature 1.3, min_p 0.08", {}};
  chains[3].second.temperature = 1.3f, chains[3].second.min_p = 0.08f;
  chains[4] = {"logit_bias, top_k 12, top_p 0.9", {}};
  chains[4].second.logit_bias = {{3, 1.5f}, {7, -2.0f}}, chains[4].second.top_k = 12, chains[4].second.top_p = 0.9f;
  const Models m;
  constexpr const char* kNames[] = {"good", "bad", "always wrong"};
  for (auto& [name, params] : chains) {
    const Distributions distributions(m, params);
    for (const Drafter drafter : {Drafter::kGood, Drafter::kBad, Drafter::kWrong})
      for (const bool rejection : {false, true}) {
        std::vector<int> counts(size_t(kVocab) * kVocab * kVocab);
        int accepted = 0;
        SamplingParams p = params;
        for (int i = 0; i < kTexts; ++i) {
          p.seed = uint64_t(i) * 3 + 17;
          const auto text = rejection ? rejected(distributions, drafter, p, &accepted) : coupled(m, drafter, p, &accepted);
          ++counts[size_t((text[0] * kVocab + text[1]) * kVocab + text[2])];
        }
        const double value = test_texts(m.target, params, counts);
        std::printf("%-34s %-13s %-9s p = %.3f, %d accepted\n", name, kNames[int(drafter)], rejection ? "rejection" : "coupled", value, accepted);
        EXPECT_GT(value, 1e-4) << name << ", " << kNames[int(drafter)];
        EXPECT_LT(value, 1 - 1e-6);
        if (drafter == Drafter::kWrong && !rejection) {
          EXPECT_EQ(accepted, 0);
        }
      }
  }
}

TEST(Accept, StopsAtTheFirstThatDiffers) {
  std::vector<SampledToken> drawn(4);
  for (int i = 0; i < 4; ++i) drawn[size_t(i)].token = 10 + i;
  EXPECT_EQ(accepted_prefix({}, drawn), 0);
  EXPECT_EQ(accepted_prefix(std::vector<int32_t>{10, 11, 12}, drawn), 3);
  EXPECT_EQ(accepted_prefix(std::vector<int32_t>{10, 7, 12}, drawn), 1);
  EXPECT_EQ(accepted_prefix(std::vector<int32_t>{9, 11, 12}, drawn), 0);
}

// Tokens of drafts count as output before them.
TEST(Accept, PenaltiesCountTheDraftsBeforeARow) {
  SamplingParams p;
  p.repetition_penalty = 1.5f;
  p.presence_penalty = 0.25f;
  p.frequency_penalty = 0.5f;
  const std::vector<int32_t> all{1, 2, 3, 4, 4, 5}, known{1, 2, 3, 4}, drafts{4, 5};
  std::vector<LogitChange> whole, apart;
  add_changes(p, all, 2, {}, 10, whole);
  add_changes(p, known, 2, {}, 10, apart, drafts);
  ASSERT_EQ(whole.size(), apart.size());
  for (size_t i = 0; i < whole.size(); ++i) {
    EXPECT_EQ(whole[i].token, apart[i].token);
    EXPECT_EQ(whole[i].divide, apart[i].divide);
    EXPECT_EQ(whole[i].subtract, apart[i].subtract);
  }
}

}  // namespace
}  // namespace sluice::sample
