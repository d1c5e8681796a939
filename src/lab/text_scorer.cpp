#include "lab/text_scorer.h"

#include <algorithm>
#include <cmath>

#include "base/portable_exp.h"

namespace sluice::lab {
namespace {

constexpr int kLanes = 16;  // sums kept apart, so that loops over the vocabulary become vectors
constexpr int kStrip = 4096;  // terms that are added in float32 before they go to a double

int argmax(const float* x, int n) {
  float most[kLanes];
  std::fill(std::begin(most), std::end(most), -INFINITY);
  int i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int l = 0; l < kLanes; ++l) most[l] = most[l] > x[i + l] ? most[l] : x[i + l];
  float top = *std::max_element(std::begin(most), std::end(most));
  for (; i < n; ++i) top = std::max(top, x[i]);
  return int(std::find(x, x + n, top) - x);
}

// The sum of exp(x - top), and of that times x - y (y null: 0).
struct Sums {
  double weight = 0, difference = 0;
};

template <bool kPaired>
Sums sum_exp(const float* x, const float* y, float top, int n) {
  Sums total;
  for (int begin = 0; begin < n; begin += kStrip) {
    const int end = std::min(n, begin + kStrip);
    float weight[kLanes] = {}, difference[kLanes] = {};
    int i = begin;
    for (; i + kLanes <= end; i += kLanes)
      for (int l = 0; l < kLanes; ++l) {
        const float e = portable_exp(x[i + l] - top);
        weight[l] += e;
        if (kPaired) difference[l] += e * (x[i + l] - y[i + l]);
      }
    for (; i < end; ++i) {
      const float e = portable_exp(x[i] - top);
      weight[0] += e;
      if (kPaired) difference[0] += e * (x[i] - y[i]);
    }
    for (int l = 0; l < kLanes; ++l) total.weight += double(weight[l]), total.difference += double(difference[l]);
  }
  return total;
}

Status check_vocabularies(const LoadedModel& model, const LoadedModel& reference) {
  const int a = model.tokenizer->size(), b = reference.tokenizer->size();
  if (a != b)
    return Error{ErrorCode::kUnsupported, "its vocabulary has " + std::to_string(b) + " tokens, the model's " + std::to_string(a) + ": predictions cannot be compared", "--reference"};
  for (int i = 0; i < a; ++i)
    if (model.tokenizer->token_text(i) != reference.tokenizer->token_text(i))
      return Error{ErrorCode::kUnsupported, "its token " + std::to_string(i) + " is '" + reference.tokenizer->token_text(i) + "', the model's '" + model.tokenizer->token_text(i) +
                   "': predictions cannot be compared", "--reference"};
  return {};
}

}  // namespace

TokenScore score_row(const float* logits, const float* reference, int vocab, int target) {
  TokenScore s;
  const int top = argmax(logits, vocab);
  const double lse = double(logits[top]) + std::log(sum_exp<false>(logits, nullptr, logits[top], vocab).weight);
  s.nll = lse - double(logits[target]);
  s.is_top = top == target;
  if (!reference) return s;
  const int reference_top = argmax(reference, vocab);
  const Sums sums = sum_exp<true>(reference, logits, reference[reference_top], vocab);
  const double reference_lse = double(reference[reference_top]) + std::log(sums.weight);
  s.reference_nll = reference_lse - double(reference[target]);
  s.kl = std::max(0.0, sums.difference / sums.weight - (reference_lse - lse));  // rounding may leave it a little below
  s.same_top = top == reference_top;
  s.is_reference_top = reference_top == target;
  return s;
}

Result<std::unique_ptr<TextScorer>> TextScorer::make(const LoadedModel& model, const LoadedModel* reference) {
  std::unique_ptr<TextScorer> s(new TextScorer);
  if (reference) SLUICE_TRY(check_vocabularies(model, *reference));
  const auto lane = [](const LoadedModel& m, Lane& out) -> Status {
    SLUICE_ASSIGN(out.executor, m.make_executor());
    out.vocab = m.model->spec().vocab;
    return {};
  };
  SLUICE_TRY(lane(model, s->model_));
  s->max_tokens_ = model.scheduler.max_context;
  s->step_tokens_ = model.scheduler.max_step_tokens;
  s->tile_ = s->model_.executor->logit_rows();
  s->plan_.block_tokens = model.scheduler.block_tokens;
  if (!reference) return s;
  SLUICE_TRY(lane(*reference, s->reference_));
  s->max_tokens_ = std::min(s->max_tokens_, reference->scheduler.max_context);
  s->step_tokens_ = std::min(s->step_tokens_, reference->scheduler.max_step_tokens);
  s->tile_ = std::min(s->tile_, s->reference_.executor->logit_rows());
  SLUICE_CHECK(reference->scheduler.block_tokens == s->plan_.block_tokens);
  return s;
}

// Tokens [begin, end) of one sequence in blocks 0, 1, ...; rows of those whose next token is to be scored.
void TextScorer::make_plan(std::span<const int32_t> tokens, int begin, int end, int first) {
  plan_.clear();
  const int blocks = (end + plan_.block_tokens - 1) / plan_.block_tokens;
  for (int i = begin; i < end; ++i) {
    plan_.token_ids.push_back(tokens[size_t(i)]);
    plan_.positions.push_back(i);
    plan_.sequence_of.push_back(0);
    if (i + 1 < first || i + 1 >= int(tokens.size())) continue;
    sched::OutputRow row;
    row.token_row = i - begin;
    row.samples = false;
    row.target = tokens[size_t(i) + 1];
    plan_.rows.push_back(row);
  }
  plan_.query_begin = {0, end - begin};
  plan_.kv_len = {end};
  plan_.draft_len = {0};
  plan_.block_begin = {0, blocks};
  for (int b = 0; b < blocks; ++b) plan_.block_ids.push_back(b);
}

Status TextScorer::score(std::span<const int32_t> tokens, int first, std::vector<TokenScore>& out) {
  SLUICE_CHECK(first >= 1);
  const int n = int(tokens.size());
  if (n > max_tokens_) return Error{ErrorCode::kContextLength, std::to_string(n) + " tokens are more than a sequence may have here, " + std::to_string(max_tokens_), "--context"};
  for (int begin = 0; begin < n; begin += step_tokens_) {
    make_plan(tokens, begin, std::min(n, begin + step_tokens_), first);
    SLUICE_TRY(model_.executor->forward(plan_));
    if (reference_.executor) SLUICE_TRY(reference_.executor->forward(plan_));
    SLUICE_TRY(score_rows(out));
  }
  return {};
}

Status TextScorer::score_rows(std::vector<TokenScore>& out) {
  struct Tile {
    const float *logits, *reference;
    size_t stride, reference_stride;
    int vocab;
    const sched::OutputRow* rows;
    TokenScore* out;
  } tile{};
  tile.stride = size_t(model_.vocab);
  tile.reference_stride = size_t(reference_.vocab);
  tile.vocab = reference_.executor ? std::min(model_.vocab, reference_.vocab) : model_.vocab;
  const int rows = int(plan_.rows.size());
  for (int begin = 0; begin < rows; begin += tile_) {
    const int count = std::min(tile_, rows - begin);
    SLUICE_ASSIGN(tile.logits, model_.executor->logits(begin, count));
    if (reference_.executor) {
      SLUICE_ASSIGN(tile.reference, reference_.executor->logits(begin, count));
    }
    tile.rows = plan_.rows.data() + begin;
    out.resize(out.size() + size_t(count));
    tile.out = out.data() + out.size() - size_t(count);
    model_.executor->parallel_for(count, [](void* arg, int i) noexcept {
      const Tile& t = *static_cast<const Tile*>(arg);
      const float* reference = t.reference ? t.reference + size_t(i) * t.reference_stride : nullptr;
      t.out[i] = score_row(t.logits + size_t(i) * t.stride, reference, t.vocab, t.rows[i].target);
    }, &tile);
  }
  return {};
}

}  // namespace sluice::lab
