#include "lab/text_scorer.h"

#include <algorithm>
#include <climits>
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

Status check_vocabularies(const LoadedModel& model, const LoadedModel& other, const char* flag) {
  const int a = model.tokenizer->size(), b = other.tokenizer->size();
  if (a != b)
    return Error{ErrorCode::kUnsupported, "its vocabulary has " + std::to_string(b) + " tokens, the model's " + std::to_string(a) + ": predictions cannot be compared", flag};
  for (int i = 0; i < a; ++i)
    if (model.tokenizer->token_text(i) != other.tokenizer->token_text(i))
      return Error{ErrorCode::kUnsupported, "its token " + std::to_string(i) + " is '" + other.tokenizer->token_text(i) + "', the model's '" + model.tokenizer->token_text(i) +
                   "': predictions cannot be compared", flag};
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

Result<std::unique_ptr<TextScorer>> TextScorer::make(const LoadedModel& model, const LoadedModel* reference, std::span<const LoadedModel> others) {
  std::unique_ptr<TextScorer> s(new TextScorer);
  if (reference) SLUICE_TRY(check_vocabularies(model, *reference, "--reference"));
  for (const LoadedModel& m : others) SLUICE_TRY(check_vocabularies(model, m, "--versus"));
  s->max_tokens_ = model.scheduler.max_context;
  s->step_tokens_ = model.scheduler.max_step_tokens;
  s->tile_ = INT_MAX;
  s->plan_.block_tokens = model.scheduler.block_tokens;
  SLUICE_TRY(s->add_lane(model, s->model_));
  if (reference) SLUICE_TRY(s->add_lane(*reference, s->reference_));
  for (const LoadedModel& m : others) SLUICE_TRY(s->add_lane(m, s->others_.emplace_back()));
  return s;
}

// All run the same plans, of as much as each of them can.
Status TextScorer::add_lane(const LoadedModel& m, Lane& lane) {
  SLUICE_CHECK(m.scheduler.block_tokens == plan_.block_tokens);
  SLUICE_ASSIGN(lane.executor, m.make_executor());
  lane.vocab = m.model->spec().vocab;
  max_tokens_ = std::min(max_tokens_, m.scheduler.max_context);
  step_tokens_ = std::min(step_tokens_, m.scheduler.max_step_tokens);
  tile_ = std::min(tile_, lane.executor->logit_rows());
  return {};
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

Status TextScorer::score(std::span<const int32_t> tokens, int first, std::vector<TokenScore>& out, std::span<std::vector<TokenScore>> others) {
  SLUICE_CHECK(first >= 1 && (others.empty() || others.size() == others_.size()));
  const int n = int(tokens.size());
  if (n > max_tokens_) return Error{ErrorCode::kContextLength, std::to_string(n) + " tokens are more than a sequence may have here, " + std::to_string(max_tokens_), "--context"};
  for (int begin = 0; begin < n; begin += step_tokens_) {
    make_plan(tokens, begin, std::min(n, begin + step_tokens_), first);
    SLUICE_TRY(model_.executor->forward(plan_));
    if (reference_.executor) SLUICE_TRY(reference_.executor->forward(plan_));
    for (size_t i = 0; i < others.size(); ++i) SLUICE_TRY(others_[i].executor->forward(plan_));
    SLUICE_TRY(score_rows(out, others));
  }
  return {};
}

Status TextScorer::score_rows(std::vector<TokenScore>& out, std::span<std::vector<TokenScore>> others) {
  const int rows = int(plan_.rows.size());
  for (int begin = 0; begin < rows; begin += tile_) {
    const int count = std::min(tile_, rows - begin);
    const float* reference = nullptr;
    if (reference_.executor) {
      SLUICE_ASSIGN(reference, reference_.executor->logits(begin, count));
    }
    SLUICE_TRY(score_tile(model_, reference, begin, count, out));
    for (size_t i = 0; i < others.size(); ++i) SLUICE_TRY(score_tile(others_[i], reference, begin, count, others[i]));
  }
  return {};
}

// Rows [begin, begin + count) of the plan's, against the reference's logits of the same (nullptr: none).
Status TextScorer::score_tile(const Lane& lane, const float* reference, int begin, int count, std::vector<TokenScore>& out) {
  struct Tile {
    const float *logits, *reference;
    size_t stride, reference_stride;
    int vocab;
    const sched::OutputRow* rows;
    TokenScore* out;
  } tile{};
  SLUICE_ASSIGN(tile.logits, lane.executor->logits(begin, count));
  tile.reference = reference;
  tile.stride = size_t(lane.vocab);
  tile.reference_stride = size_t(reference_.vocab);
  tile.vocab = reference ? std::min(lane.vocab, reference_.vocab) : lane.vocab;
  tile.rows = plan_.rows.data() + begin;
  out.resize(out.size() + size_t(count));
  tile.out = out.data() + out.size() - size_t(count);
  lane.executor->parallel_for(count, [](void* arg, int i) noexcept {
    const Tile& t = *static_cast<const Tile*>(arg);
    const float* row = t.reference ? t.reference + size_t(i) * t.reference_stride : nullptr;
    t.out[i] = score_row(t.logits + size_t(i) * t.stride, row, t.vocab, t.rows[i].target);
  }, &tile);
  return {};
}

}  // namespace sluice::lab
