// sample: the token, bit for bit, that sample/sampler.cpp draws from the same logits; log-probabilities near its own.
#include <algorithm>

#include "kernels/backend_buffer.h"
#include "lab/kernel_check.h"
#include "lab/on_backend.h"
#include "sample/sampler.h"

namespace sluice::lab {
namespace {

using sample::SamplingParams;

struct Request {
  SamplingParams params;
  std::vector<int32_t> history, banned;
  int prompt = 0, target = -1;
};

SamplingParams params(float temperature, int top_k = 0, float top_p = 1, float min_p = 0, int logprobs = -1) {
  SamplingParams p;
  p.temperature = temperature;
  p.top_k = top_k;
  p.top_p = top_p;
  p.min_p = min_p;
  p.num_logprobs = logprobs;
  return p;
}

// Every kind of row, with seeds of their own, `copies` times.
std::vector<Request> requests(int vocab, int copies) {
  std::vector<Request> out;
  Rng rng(77);
  for (int c = 0; c < copies; ++c) {
    const size_t begin = out.size();
    for (float t : {0.0f, 1.0f, 0.7f, 1.9f}) out.push_back({params(t), {}, {}});
    for (int k : {1, 5, 40, vocab - 1, vocab + 3}) out.push_back({params(1, k), {}, {}});
    for (float p : {1e-6f, 0.1f, 0.9f, 0.9999f}) out.push_back({params(1, 0, p), {}, {}});
    for (float m : {1.0f, 0.3f, 0.001f}) out.push_back({params(1.3f, 0, 1, m), {}, {}});
    out.push_back({params(0.8f, 50, 0.95f, 0.02f), {}, {}});
    for (int n : {0, 1, sample::kMaxLogprobs}) {
      out.push_back({params(0, 0, 1, 0, n), {}, {}});
      out.push_back({params(1, 0, 0.9f, 0, n), {}, {}});
      Request score{params(1, 0, 1, 0, n), {}, {}};
      score.target = int(rng.below(uint32_t(vocab)));
      out.push_back(score);
    }
    Request changed{params(1, 0, 1, 0, 2), {}, {}};
    for (int i = 0; i < 30; ++i) changed.history.push_back(int32_t(rng.below(uint32_t(vocab))));
    changed.prompt = 10;
    changed.banned = {int32_t(rng.below(uint32_t(vocab)))};
    changed.params.repetition_penalty = 1.3f;
    changed.params.presence_penalty = 0.4f;
    changed.params.frequency_penalty = 0.2f;
    changed.params.logit_bias = {{int32_t(rng.below(uint32_t(vocab))), 5.0f}, {0, -1.5f}};
    out.push_back(changed);
    changed.params.temperature = 0;
    out.push_back(changed);
    for (size_t i = begin; i < out.size(); ++i) {
      out[i].params.seed = rng.next_u64();
      out[i].params.choice = int(rng.below(3));
    }
  }
  return out;
}

// A step's arrays as an executor makes them.
struct Step {
  std::vector<sample::SampleRow> rows;
  std::vector<sample::LogitChange> changes;
  Step(const std::vector<Request>& requests, int vocab) {
    for (size_t i = 0; i < requests.size(); ++i) {
      const Request& q = requests[i];
      sample::SampleRow r = sample::make_row(q.params, int64_t(i) * 31);
      r.target = q.target;
      r.changes_begin = int32_t(changes.size());
      if (q.target < 0) sample::add_changes(q.params, q.history, q.prompt, q.banned, vocab, changes);
      r.changes_end = int32_t(changes.size());
      rows.push_back(r);
    }
  }
};

// kind 0: near normal, as models give; 1: few distinct values, so that ties decide; 2: one far above the rest, and infinities.
std::vector<float> make_logits(int kind, int vocab, uint64_t seed) {
  Rng rng(seed);
  std::vector<float> x(static_cast<size_t>(vocab));
  for (float& v : x) v = kind == 1 ? float(int(rng.below(3))) - 1.0f : rng.normalish() * 3;
  if (kind == 2) {
    x[rng.below(uint32_t(vocab))] = 40;
    for (int i = 0; i < vocab / 10; ++i) x[rng.below(uint32_t(vocab))] = -INFINITY;
  }
  return x;
}

struct Got {
  std::vector<sample::SampledRow> rows;
  std::vector<sample::TokenLogprob> top;
  std::vector<int32_t> tokens;
};

Got run(const KernelTable& t, const Step& step, const std::vector<float>& logits, int vocab) {
  const ContextPtr context = make_context(t, 3);
  const int n = int(step.rows.size());
  std::vector<sample::LogitChange> changes = step.changes;
  changes.resize(changes.size() + 1);  // never empty
  const OnBackend<float> x(t, logits);
  const OnBackend<sample::SampleRow> rows(t, step.rows);
  const OnBackend<sample::LogitChange> moves(t, changes);
  const OnBackend<int32_t> tokens(t, std::vector<int32_t>(step.rows.size(), -7));
  const BackendBuffer results(t, sizeof(sample::SampledRow) * size_t(n), MemoryKind::kStaging);
  const BackendBuffer top(t, sizeof(sample::TokenLogprob) * size_t(n) * sample::kMaxLogprobs, MemoryKind::kStaging);
  t.sample(context.get(), {n, vocab, x.data(), rows.data(), moves.data(), tokens.data(), results.as<sample::SampledRow>(), top.as<sample::TokenLogprob>()});
  Got got;
  got.tokens = tokens.read(context.get());
  got.rows.assign(results.as<sample::SampledRow>(), results.as<sample::SampledRow>() + n);
  got.top.assign(top.as<sample::TokenLogprob>(), top.as<sample::TokenLogprob>() + size_t(n) * sample::kMaxLogprobs);
  x.read(context.get());  // its sentinels
  return got;
}

Verdict draw(const KernelTable& t, int kind, int vocab, int copies) {
  const std::vector<Request> all = requests(vocab, copies);
  const Step step(all, vocab);
  std::vector<float> logits;
  for (size_t i = 0; i < all.size(); ++i) {
    const std::vector<float> x = make_logits(kind, vocab, i);
    logits.insert(logits.end(), x.begin(), x.end());
  }
  const Got got = run(t, step, logits, vocab);
  Verdict v;
  for (size_t i = 0; i < all.size(); ++i) {
    const sample::SampleRow& row = step.rows[i];
    std::vector<sample::LogitChange> changes(step.changes.begin() + row.changes_begin, step.changes.begin() + row.changes_end);
    sample::TokenLogprob top[sample::kMaxLogprobs];
    const sample::SampledRow want = sample::sample_row(std::span(logits).subspan(i * size_t(vocab), size_t(vocab)), row, changes, top);
    const std::string where = "row " + std::to_string(i);
    if (got.rows[i].token != want.token || got.tokens[i] != want.token)
      return {0, where + ": token " + std::to_string(got.rows[i].token) + ", wanted " + std::to_string(want.token)};
    const auto compare = [&](float a, float b) {
      if (a != b) keep_worst(v.error, std::abs(a - b) / (2e-6 * (1 + std::abs(b))));
    };
    if (row.target >= 0 || row.num_logprobs >= 0) compare(got.rows[i].logprob, want.logprob);
    for (int k = 0; k < std::min(row.num_logprobs, vocab); ++k) {
      const sample::TokenLogprob& g = got.top[i * sample::kMaxLogprobs + size_t(k)];
      if (g.token != top[k].token) return {0, where + ": top token " + std::to_string(k) + " differs"};
      compare(g.logprob, top[k].logprob);
    }
  }
  return v;
}

std::vector<KernelCase> cases() {
  std::vector<KernelCase> out;
  for (int kind : {0, 1, 2})
    for (int vocab : {37, 1000, 49152})
      out.push_back({"kind=" + std::to_string(kind) + " V=" + std::to_string(vocab),
                     [=](const KernelTable& t) { return draw(t, kind, vocab, vocab < 10000 ? 4 : 1); }});
  return out;
}

SpeedRun prepare(const KernelTable& t, Context* c, SamplingParams p, int rows, int vocab) {
  struct Data {
    OnBackend<float> x;
    OnBackend<sample::SampleRow> rows;
    OnBackend<int32_t> tokens;
    BackendBuffer results, top;
    Data(const KernelTable& t, const std::vector<float>& logits, const std::vector<sample::SampleRow>& list)
        : x(t, logits), rows(t, list), tokens(t, std::vector<int32_t>(list.size())),
          results(t, sizeof(sample::SampledRow) * list.size(), MemoryKind::kStaging),
          top(t, sizeof(sample::TokenLogprob) * list.size() * sample::kMaxLogprobs, MemoryKind::kStaging) {}
  };
  std::vector<float> logits;
  std::vector<sample::SampleRow> list;
  for (int i = 0; i < rows; ++i) {
    const std::vector<float> x = make_logits(0, vocab, uint64_t(i));
    logits.insert(logits.end(), x.begin(), x.end());
    list.push_back(sample::make_row(p, i));
  }
  const auto d = std::make_shared<Data>(t, logits, list);
  SpeedRun run;
  run.bytes = double(logits.size()) * 4;
  run.call = [&t, c, d, rows, vocab] {
    t.sample(c, {rows, vocab, d->x.data(), d->rows.data(), nullptr, d->tokens.data(), d->results.as<sample::SampledRow>(), d->top.as<sample::TokenLogprob>()});
  };
  return run;
}

std::vector<SpeedCase> speeds() {
  std::vector<SpeedCase> out;
  for (const auto& [rows, vocab] : {std::pair{1, 128256}, {64, 128256}, {16, 262144}})
    for (const auto& [name, p] : {std::pair{"greedy", params(0)}, {"temperature", params(1)}, {"top_p", params(1, 0, 0.95f)}, {"top_k top_p", params(1, 50, 0.95f)}})
      out.push_back({std::string(name) + " L=" + std::to_string(rows) + " V=" + std::to_string(vocab), false,
                     [rows = rows, vocab = vocab, p = p](const KernelTable& t, Context* c) { return prepare(t, c, p, rows, vocab); }});
  return out;
}

}  // namespace

extern const KernelCheck check_sample{"sample", "tokens: none; log-probabilities: the roundings of a sum in double and of a float", cases, speeds};

}  // namespace sluice::lab
