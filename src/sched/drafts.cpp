// Scheduler, third part: drafts - who can take them, how many a step has room for, what becomes of them.
#include <algorithm>

#include "sample/accept.h"
#include "sched/scheduler.h"

namespace sluice::sched {

// With all of them accepted a step gives one token more: never more than the request and the context have room for. Once 0, always 0.
// A log-probability is of the token that the target draws, which rejection does not ask for: there such requests get none.
int64_t Scheduler::room_for_tokens(const Sequence* s) const {
  if (options_.rejection && s->sampling.num_logprobs >= 0) return 0;
  return std::max<int64_t>(0, std::min<int64_t>(s->request->submission.max_tokens - s->generated(), options_.max_context - s->known()) - 1);
}

int Scheduler::draft_limit(const Sequence* s) const {
  int64_t left = room_for_tokens(s);
  const int G = options_.group_tokens;
  if (G > 1) left = std::min<int64_t>(left, G - 1 - s->known() % G);  // a group's last token is certain
  return int(std::min<int64_t>(left, kMaxDrafts));
}

std::span<const DraftSlot> Scheduler::draft_slots() {
  slots_.clear();
  for (Sequence* s : running_) {
    const Submission& sub = s->request->submission;
    if (s->drafting == 0) s->drafts.clear();
    DraftSlot slot;
    slot.sequence = s->order;
    slot.request_class = sub.request_class;
    slot.share_key = sub.share_key;
    slot.cache_salt = sub.cache_salt;
    slot.history = s->tokens;
    slot.prompt_tokens = s->prompt_tokens;
    slot.computed = s->computed;
    slot.limit = draft_limit(s);
    slot.excluded = room_for_tokens(s) == 0;
    slot.ready = s->flights == 0 && s->known() - s->computed == 1;
    slot.soon = s->flights > 0 && s->expected() - s->scheduled() <= 1;
    slot.sampling = &s->sampling;
    slot.banned = s->request->banned_early;
    slot.min_left = std::max(0, sub.min_tokens - s->generated());
    slots_.push_back(slot);
  }
  return slots_;
}

void Scheduler::put_drafts(size_t i, std::span<const TokenId> drafts, bool waits, std::vector<std::vector<float>> distributions) {
  SLUICE_CHECK(i < slots_.size() && i < running_.size() && slots_[i].sequence == running_[i]->order);
  Sequence* s = running_[i];
  s->waits_for_drafts = waits;
  if (!slots_[i].ready) return;
  drafts = drafts.first(std::min(drafts.size(), size_t(slots_[i].limit)));
  const auto end = std::find_if(drafts.begin(), drafts.end(), [&](TokenId t) { return t < 0 || t >= options_.vocab; });
  s->drafts.assign(drafts.begin(), end);
  s->draft_distributions = std::move(distributions);
}

// Last of all: drafts are guesses, and what is sure goes first. Prompts that come in the next step find at least half a step.
void Scheduler::add_drafts() {
  int left = budget_ / 2;
  bool any = false;
  for (Work& w : making_->work) {
    Sequence* s = w.sequence;
    if (s->drafts.empty() || w.count != 1 || s->flights > 0 || s->scheduled() + 1 != s->known()) continue;
    const int k = room_for_drafts(w, std::min(int(s->drafts.size()), left));
    w.drafts = k;
    w.count += k;
    left -= k;
    budget_ -= k;
    any = any || k > 0;
  }
  if (!any) return;
  making_->shape = interactive_shape_ = {};
  for (const Work& w : making_->work) add_shape(w);
}

// Of batch class beside interactive work, no more than batch_room leaves; blocks only where they are free.
int Scheduler::room_for_drafts(Work& w, int count) {
  Sequence* s = w.sequence;
  const int B = options_.block_tokens;
  if (interactive_here_ && s->request_class() == RequestClass::kBatch) {
    if (full_[int(RequestClass::kBatch)]) return 0;
    count = std::max(0, fitting(s, 1 + count) - 1);
  }
  while (int(s->blocks.size()) * B < s->scheduled() + 1 + count && allocate(s)) continue;
  return std::min(count, int(s->blocks.size()) * B - s->scheduled() - 1);
}

// The last token of s in the plan gives the next one, and every draft after it one more.
void Scheduler::add_draws(Sequence* s, int index, int drafts) {
  BatchPlan& plan = making_->plan;
  s->drawing_row = int(plan.rows.size());
  for (int i = 0; i <= drafts; ++i) {
    OutputRow r;
    r.token_row = plan.num_tokens() - 1 - drafts + i;
    r.sequence = index;
    r.params = &s->sampling;
    r.history = s->tokens;
    r.drafts = std::span(s->drafts).first(size_t(i));
    r.position = s->expected();
    if (options_.rejection && i < drafts) {
      r.verifies = s->drafts[size_t(i)];
      if (!s->draft_distributions.empty()) r.proposed = s->draft_distributions[size_t(i)].data();
    }
    r.prompt_tokens = s->prompt_tokens;
    if (s->generated() + s->drawing < s->request->submission.min_tokens) r.banned = s->request->banned_early;
    ++s->drawing;
    plan.rows.push_back(r);
  }
  s->drafting = drafts;
}

// Every accepted draft is computed already; its block is indexed only now that its tokens are known to be the sequence's. The
// rest is undone: what lies behind `computed` is written over, and blocks beyond it go back.
bool Scheduler::take_draws(Sequence* s, int drafts, std::span<const sample::SampledToken> drawn, TimeUs now, StepOutcome& outcome) {
  SLUICE_CHECK(int(drawn.size()) == drafts + 1);
  const uint64_t sequence = s->order;
  const int accepted = sample::accepted_prefix(std::span(s->drafts).first(size_t(drafts)), drawn);
  s->drawing -= drafts + 1;
  s->drafting = 0;
  s->drafted += drafts;
  int taken = 0;  // accepted drafts that became output
  bool lives = true, cut = false;
  for (int i = 0; lives && i <= accepted; ++i) {
    if (i < accepted) ++s->accepted, ++taken;
    lives = take_token(s, drawn[size_t(i)], now, outcome);
    cut = !lives && i < accepted;
    if (!lives || i == accepted) continue;
    ++s->computed;
    index_full_blocks(s);
  }
  if (drafts > 0) outcome.verified.push_back({sequence, drafts, taken, cut});
  if (!lives) return false;
  s->drafts.clear();
  for (; drafts > 0 && int(s->blocks.size()) > (s->computed + options_.block_tokens - 1) / options_.block_tokens; s->blocks.pop_back())
    pool_.release(s->blocks.back());
  return true;
}

}  // namespace sluice::sched
