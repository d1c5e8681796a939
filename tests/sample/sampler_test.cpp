#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>

#include "sample/noise.h"
#include "sample/sampler.h"
#include "sample/token_mass.h"

namespace sluice::sample {
namespace {

SampledToken draw(std::vector<float> logits, SamplingParams p, int64_t position, std::vector<int32_t> history = {}, int prompt = 0, std::vector<int32_t> banned = {}) {
  std::vector<LogitChange> changes;
  add_changes(p, history, prompt, banned, int32_t(logits.size()), changes);
  TokenLogprob top[kMaxLogprobs];
  const SampledRow row = sample_row(logits, make_row(p, position), changes, top);
  return {row.token, row.logprob, {top, top + std::max(0, p.num_logprobs)}};
}

std::vector<double> softmax(const std::vector<float>& x, double t) {
  std::vector<double> p;
  double sum = 0;
  for (float v : x) p.push_back(std::exp(double(v) / t)), sum += p.back();
  for (double& v : p) v /= sum;
  return p;
}

// Chi-square of n draws against p, over tokens with an expected count of at least 5. 99.9 % quantile is about df + 3.1 sqrt(2 df) + 8.
void expect_distribution(const std::vector<int>& counts, const std::vector<double>& p, int n) {
  double chi = 0;
  int df = -1;
  for (size_t i = 0; i < p.size(); ++i) {
    if (p[i] == 0) {
      EXPECT_EQ(counts[i], 0) << "token " << i << " was truncated";
      continue;
    }
    const double e = p[i] * n;
    if (e < 5) continue;
    chi += (counts[i] - e) * (counts[i] - e) / e;
    ++df;
  }
  EXPECT_LT(chi, df + 3.1 * std::sqrt(2.0 * df) + 8);
}

const std::vector<float> kLogits{1.0f, 2.0f, 0.5f, -1.0f, 3.0f, 2.5f, 0.0f, 1.5f};

TEST(Sampler, GreedyTakesTheFirstOfTheLargest) {
  SamplingParams p;
  p.temperature = 0;
  EXPECT_EQ(draw(kLogits, p, 0).token, 4);
  EXPECT_EQ(draw({1, 5, 5}, p, 0).token, 1);
}

TEST(Sampler, DrawsFollowTheDistribution) {
  for (float t : {0.5f, 1.0f, 1.7f}) {
    SamplingParams p;
    p.temperature = t;
    p.seed = 11;
    std::vector<int> counts(kLogits.size(), 0);
    const int n = 40000;
    for (int i = 0; i < n; ++i) ++counts[size_t(draw(kLogits, p, i).token)];
    expect_distribution(counts, softmax(kLogits, t), n);
  }
}

TEST(Sampler, TruncationKeepsWhatItSays) {
  struct Case { int top_k; float top_p, min_p; std::set<int> kept; };
  // Falling: 4 (3.0), 5 (2.5), 1 (2.0), 7 (1.5), 0, 2, 6, 3; softmax .391 .237 .144 .087 .053 ...
  for (const Case& c : {Case{2, 1, 0, {4, 5}}, Case{0, 0.5f, 0, {4, 5}}, Case{0, 0.7f, 0, {4, 5, 1}}, Case{0, 1, 0.3f, {4, 5, 1}},
                        Case{1, 1, 0, {4}}, Case{0, 1e-6f, 0, {4}}, Case{3, 0.6f, 0, {4, 5}}}) {
    SamplingParams p;
    p.top_k = c.top_k;
    p.top_p = c.top_p;
    p.min_p = c.min_p;
    std::vector<double> q = softmax(kLogits, 1);
    double mass = 0;
    for (size_t i = 0; i < q.size(); ++i) mass += c.kept.count(int(i)) ? q[i] : (q[i] = 0);
    for (double& v : q) v /= mass;
    std::vector<int> counts(kLogits.size(), 0);
    for (int i = 0; i < 20000; ++i) ++counts[size_t(draw(kLogits, p, i).token)];
    expect_distribution(counts, q, 20000);
  }
}

TEST(Sampler, TopPCoversALargeFlatVocabulary) {
  std::vector<float> flat(5000, 0.0f);
  SamplingParams p;
  p.top_p = 0.5f;
  std::set<int> seen;
  for (int i = 0; i < 20000; ++i) seen.insert(draw(flat, p, i).token);
  EXPECT_LE(*seen.rbegin(), 2500);  // ties go to smaller ids, so exactly the first half is kept
  EXPECT_GT(seen.size(), 2300u);
}

TEST(Sampler, ATokenIsAFunctionOfSeedChoiceAndPosition) {
  SamplingParams p;
  p.seed = 5;
  const int first = draw(kLogits, p, 100).token;
  for (int i = 0; i < 10; ++i) EXPECT_EQ(draw(kLogits, p, 100).token, first);
  int differ = 0;
  for (int i = 0; i < 200; ++i) {
    SamplingParams q = p;
    q.choice = 1;
    differ += draw(kLogits, p, i).token != draw(kLogits, q, i).token;
  }
  EXPECT_GT(differ, 50);
}

// Every token sorted, every noise drawn: what the sampler's shortcuts must agree with.
int32_t draw_slowly(std::vector<float> x, const SamplingParams& p, int64_t position) {
  std::vector<int32_t> order(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    order[i] = int32_t(i);
    x[i] *= 1.0f / p.temperature;
  }
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return x[size_t(a)] > x[size_t(b)]; });
  const float max = x[size_t(order[0])];
  if (p.top_k > 0 && size_t(p.top_k) < order.size()) order.resize(size_t(p.top_k));
  if (p.top_p < 1) {
    uint64_t total = 0, mass = 0;
    for (int32_t t : order) total += token_mass(x[size_t(t)], max);
    size_t n = 0;
    while (n < order.size() && double(mass) < double(p.top_p) * double(total)) mass += token_mass(x[size_t(order[n++])], max);
    order.resize(n);
  }
  if (p.min_p > 0) std::erase_if(order, [&](int32_t t) { return x[size_t(t)] < max + std::log(p.min_p); });
  std::sort(order.begin(), order.end());
  Noise noise(p.seed, p.choice, position);
  int32_t best = order[0];
  float best_value = -std::numeric_limits<float>::infinity();
  for (int32_t t : order)
    if (const float v = x[size_t(t)] + noise.gumbel(t); v > best_value) best = t, best_value = v;
  return best;
}

TEST(Sampler, ShortcutsChangeNothing) {
  Rng rng(11);
  for (int i = 0; i < 2000; ++i) {
    std::vector<float> x(1 + rng.below(i % 2 ? 3000 : 300));
    const float spread = i % 7 == 0 ? 0 : 0.1f * float(1 << rng.below(8));
    for (float& v : x) v = std::round(rng.normalish() * spread * 8) / 8 - (rng.below(50) == 0 ? 1000.0f : 0);  // ties among them
    SamplingParams p;
    p.temperature = 0.25f * float(1 + rng.below(8));
    if (i % 3 == 1) p.top_k = int32_t(1 + rng.below(200));
    if (i % 5 > 2) p.top_p = rng.uniform();
    if (i % 4 == 3) p.min_p = 0.3f * rng.uniform();
    p.seed = rng.next_u64();
    EXPECT_EQ(draw(x, p, i).token, draw_slowly(x, p, i)) << "case " << i << " of " << x.size() << " tokens";
  }
}

TEST(Sampler, PenaltiesBiasAndBans) {
  SamplingParams p;
  p.temperature = 0;
  p.logit_bias = {{3, 100.0f}};
  EXPECT_EQ(draw(kLogits, p, 0).token, 3);
  EXPECT_EQ(draw(kLogits, p, 0, {}, 0, {3}).token, 4);
  SamplingParams rep;
  rep.temperature = 0;
  rep.repetition_penalty = 2;
  EXPECT_EQ(draw(kLogits, rep, 2, {4, 4}, 2).token, 5);          // 3.0 / 2 < 2.5, once however often
  SamplingParams presence;
  presence.temperature = 0;
  presence.presence_penalty = 0.6f;
  EXPECT_EQ(draw(kLogits, presence, 2, {4}, 1).token, 4);        // in the prompt alone: no penalty
  EXPECT_EQ(draw(kLogits, presence, 2, {4}, 0).token, 5);
  SamplingParams frequency;
  frequency.temperature = 0;
  frequency.frequency_penalty = 0.3f;
  EXPECT_EQ(draw(kLogits, frequency, 2, {4}, 0).token, 4);       // 2.7 > 2.5
  EXPECT_EQ(draw(kLogits, frequency, 2, {4, 4}, 0).token, 5);    // 2.4 < 2.5
}

TEST(Sampler, LogprobsAreOfTheRawDistribution) {
  SamplingParams p;
  p.temperature = 0;
  p.num_logprobs = 3;
  p.logit_bias = {{3, 100.0f}};
  const SampledToken t = draw(kLogits, p, 0);
  const auto q = softmax(kLogits, 1);
  EXPECT_EQ(t.token, 3);
  EXPECT_NEAR(t.logprob, std::log(q[3]), 1e-5);
  ASSERT_EQ(t.top.size(), 3u);
  EXPECT_EQ(t.top[0].token, 4);
  EXPECT_NEAR(t.top[0].logprob, std::log(q[4]), 1e-5);
  EXPECT_EQ(t.top[2].token, 1);
}

TEST(Sampler, ScoresATarget) {
  SampleRow row;
  row.target = 2;
  row.num_logprobs = 1;
  std::vector<float> x = kLogits;
  TokenLogprob top[1];
  const SampledRow got = sample_row(x, row, {}, top);
  EXPECT_EQ(got.token, 2);
  EXPECT_NEAR(got.logprob, std::log(softmax(kLogits, 1)[2]), 1e-5);
  EXPECT_EQ(top[0].token, 4);
  EXPECT_EQ(x, kLogits);
}

TEST(Sampler, TheLogarithmIsClose) {
  for (float x : {1.0f, 0x1p-24f, 1 - 0x1p-24f, 0.5f, 0.70710677f, 0.7071068f, 3.0f, 16.6f, 1e-30f, 5.9e-8f})
    EXPECT_NEAR(portable_log(x), std::log(double(x)), 2e-7 * std::abs(std::log(double(x)))) << x;
  Rng rng(3);
  for (int i = 0; i < 100000; ++i) {
    const float x = rng.uniform();
    EXPECT_NEAR(portable_log(x), std::log(double(x)), 2.4e-7 * std::abs(std::log(double(x)))) << x;
  }
}

TEST(Sampler, TheExponentialIsCloseAndSumsAreTheLoneTokens) {
  Rng rng(5);
  std::vector<float> x{0, -0.0f, -60, -61, -1000, std::nanf(""), -std::numeric_limits<float>::infinity(), -1e-30f};
  for (int i = 0; i < 1000; ++i) x.push_back(-40 * rng.uniform());
  uint64_t sum = 0;
  for (float v : x) {
    if (v > -60) {
      EXPECT_NEAR(portable_exp(v), std::exp(double(v)), 3e-7 * std::exp(double(v))) << v;
    }
    sum += token_mass(v, 0);
  }
  EXPECT_EQ(plain_scan.mass(x.data(), x.size(), 0), sum);
  EXPECT_EQ(token_mass(7, 7), uint64_t(kMassUnits));
}

// The largest vocabularies, all tokens alike: sums of masses must not wrap.
TEST(Sampler, AMillionEqualTokensKeepTheirShares) {
  const std::vector<float> x(1 << 19, 3.0f);
  SamplingParams p;
  p.top_p = 0.25f;
  p.num_logprobs = 0;
  for (int i = 0; i < 8; ++i) {
    const auto drawn = draw(x, p, i);
    EXPECT_LT(drawn.token, 1 << 17);
    EXPECT_NEAR(drawn.logprob, -std::log(double(x.size())), 1e-5);
  }
}

TEST(Sampler, NanLogitsGiveATokenNotACrash) {
  const float nan = std::nanf(""), none = -std::numeric_limits<float>::infinity();
  for (float temperature : {0.0f, 1.0f})
    for (int top_k : {0, 2})
      for (float top_p : {1.0f, 0.5f}) {
        SamplingParams p;
        p.temperature = temperature;
        p.top_k = top_k;
        p.top_p = top_p;
        EXPECT_EQ(draw({nan, nan, nan}, p, 0).token, 0);
        EXPECT_GE(draw({none, none, none}, p, 0).token, 0);
        EXPECT_EQ(draw({nan, 1, none}, p, 0).token, 1);
        EXPECT_GE(draw(std::vector<float>(1000, nan), p, 0).token, 0);
      }
}

}  // namespace
}  // namespace sluice::sample
