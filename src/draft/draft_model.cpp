#include "draft/draft_model.h"

#include <algorithm>

namespace sluice::draft {

DraftModel::DraftModel(DraftModelOptions options, std::unique_ptr<exec::Executor> executor, const Clock* clock)
    : options_(options), executor_(std::move(executor)), clock_(clock), cache_(executor_->total_blocks(), executor_->block_tokens()) {
  plan_.block_tokens = executor_->block_tokens();
}

// A sequence with a token that the draft model does not have cannot be drafted for.
bool DraftModel::usable(const DraftSlot& slot) {
  Checked& c = checked_[slot.sequence];
  for (; c.usable && c.tokens < int(slot.history.size()); ++c.tokens) c.usable = slot.history[size_t(c.tokens)] < options_.vocab;
  return c.usable;
}

void DraftModel::gather(std::span<const DraftSlot> slots, std::span<const int> wanted, std::span<Proposal> proposals) {
  active_.clear();
  ++calls_;
  for (size_t i = 0; i < slots.size() && int(active_.size()) < options_.max_sequences; ++i) {
    const DraftSlot& slot = slots[i];
    // Of a prompt, as far as the target is.
    const int known = wanted[i] > 0 ? int(slot.history.size()) : slot.computed;
    const int most = std::min(wanted[i], options_.max_context - known);
    if (wanted[i] < 0 || known == 0 || most < 0 || !usable(slot)) continue;
    CachedText& text = cache_.follow(slot.sequence, slot.history, slot.cache_salt);
    if (most == 0 && text.computed() >= known) continue;
    if (!cache_.reserve(text, known + std::max(0, most - 1), calls_)) continue;
    Active a{&slots[i], most, &proposals[i], &text, *slot.sampling, false};
    a.sampling.num_logprobs = -1;
    active_.push_back(std::move(a));
  }
}

Status DraftModel::propose(std::span<const DraftSlot> slots, std::span<const int> wanted, std::span<Proposal> proposals) {
  gather(slots, wanted, proposals);
  while (!active_.empty()) SLUICE_TRY(pass());
  return {};
}

// Everyone computes what it knows or drafted and has not computed, within a step's budget, and draws where that was all. Who did
// not get so far goes on in the next call, as prompts do.
Status DraftModel::pass() {
  plan_.clear();
  int budget = options_.max_step_tokens;
  for (Active& a : active_) {
    const int known = a.wanted > 0 ? int(a.slot->history.size() + a.proposal->tokens.size()) : a.slot->computed;
    const int pending = known - a.text->computed(), count = std::min(pending, budget);
    a.draws = a.wanted > 0 && count == pending;
    if (count > 0) add(a, count);
    budget -= count;
  }
  SLUICE_TRY(run_plan());
  size_t row = 0;
  for (Active& a : active_) {
    if (!a.draws) continue;
    const TokenId token = result_.rows[row++].token;
    // What the target does not have, or the draft model could not go on from, ends the drafts.
    if (token < 0 || token >= std::min(options_.target_vocab, options_.vocab)) a.wanted = 0;
    else a.proposal->tokens.push_back(token);
    if (options_.rejection) a.proposal->distributions.back().resize(size_t(options_.target_vocab));
  }
  std::erase_if(active_, [](const Active& a) { return !a.draws || int(a.proposal->tokens.size()) >= a.wanted; });
  return {};
}

// `count` tokens of a from where it is computed to; the last of them may draw.
void DraftModel::add(Active& a, int count) {
  const std::span<const TokenId> known = a.slot->history, drafts = a.proposal->tokens;
  const int begin = a.text->computed(), index = plan_.num_sequences(), known_count = int(known.size());
  fed_.clear();
  for (int p = begin; p < begin + count; ++p) {
    fed_.push_back(p < known_count ? known[size_t(p)] : drafts[size_t(p - known_count)]);
    plan_.token_ids.push_back(fed_.back());
    plan_.positions.push_back(p);
    plan_.sequence_of.push_back(index);
  }
  plan_.query_begin.push_back(plan_.num_tokens());
  plan_.kv_len.push_back(begin + count);
  plan_.draft_len.push_back(0);
  const int blocks = (begin + count + plan_.block_tokens - 1) / plan_.block_tokens;
  plan_.block_ids.insert(plan_.block_ids.end(), a.text->blocks.begin(), a.text->blocks.begin() + blocks);
  plan_.block_begin.push_back(int32_t(plan_.block_ids.size()));
  cache_.computed(*a.text, fed_, known_count, a.slot->cache_salt);
  if (!a.draws) return;
  sched::OutputRow r;
  r.token_row = plan_.num_tokens() - 1;
  r.sequence = index;
  r.params = &a.sampling;
  r.history = known;
  r.drafts = drafts;
  r.position = begin + count;
  r.prompt_tokens = a.slot->prompt_tokens;
  if (a.slot->min_left > int(drafts.size())) r.banned = a.slot->banned;
  if (options_.rejection) r.distribution = &a.proposal->distributions.emplace_back();
  plan_.rows.push_back(r);
}

Status DraftModel::run_plan() {
  const TimeUs begin = clock_->now_us();
  SLUICE_TRY(executor_->submit(plan_));
  SLUICE_TRY(executor_->collect(result_));
  const TimeUs took = clock_->now_us() - begin;
  sched::StepShape shape;
  for (int s = 0; s < plan_.num_sequences(); ++s) shape.add(plan_.query_begin[size_t(s) + 1] - plan_.query_begin[size_t(s)], plan_.kv_len[size_t(s)], 0);
  shape.rows = int(plan_.rows.size());
  cost_.observe(shape, took);
  ++passes_;
  tokens_ += uint64_t(plan_.num_tokens());
  took_us_ += took;
  return {};
}

void DraftModel::forget(uint64_t sequence) {
  cache_.forget(sequence);
  checked_.erase(sequence);
}

double DraftModel::pass_us(int sequences, int64_t cached_tokens) const {
  return cost_.predict({sequences, sequences, cached_tokens, cached_tokens});
}

double DraftModel::catch_up_us(int tokens, int64_t length) const {
  sched::StepShape shape;
  shape.add(tokens, length, 0);
  return tokens > 0 ? cost_.predict(shape) : 0;
}

int DraftModel::behind(const DraftSlot& slot) const { return std::max(0, int(slot.history.size()) - 1 - cache_.computed_of(slot.sequence)); }

}  // namespace sluice::draft
