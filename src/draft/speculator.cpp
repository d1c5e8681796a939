#include "draft/speculator.h"

#include <algorithm>

namespace sluice::draft {
namespace {

constexpr uint64_t kStepsBetweenProbes = 64;
constexpr uint64_t kModelInUse = 16;       // steps for which prompts are followed after it was last asked
constexpr double kMostCreditUs = 2e6;
constexpr int kProbeDrafts = 3;
constexpr double kProbeHope = 0.9;         // a probe is made where the draft model would pay if it were so good
constexpr double kProbeKeep = 0.8;         // of what is known of it, at each probe
constexpr double kFewOutcomes = 8;         // until then one sequence at a time tries the draft model
constexpr int kCatchUpSteps = 16;          // over which the price of catching up is spread
constexpr int kFirstChunk = 64;            // tokens that a waiting prompt is taken to add to a step

}  // namespace

Speculator::Speculator(SpeculatorOptions options, std::unique_ptr<DraftModel> model) : options_(options), model_(std::move(model)) {
  options_.max_drafts = std::clamp(options_.max_drafts, 1, sched::kMaxDrafts);
}

Status Speculator::prepare(sched::Scheduler& scheduler) {
  if (!price_) {
    price_ = std::make_unique<StepPrice>(&scheduler.cost());
    control_ = std::make_unique<Control>(price_.get());
  }
  ++steps_;
  waiting_ = scheduler.num_waiting();
  max_step_tokens_ = scheduler.options().max_step_tokens;
  const std::span<const DraftSlot> slots = scheduler.draft_slots();
  rows_.clear();
  for (const DraftSlot& slot : slots) {
    State& state = states_[slot.sequence];
    state.request_class = slot.request_class;
    look_back(slot, state);
    rows_.push_back({&state, Source::kNgram, -1});
  }
  look_up(slots);
  gather(slots);
  choices_.assign(candidates_.size(), {});
  if (options_.fixed >= 0) decide_fixed(slots);
  else decide(slots);
  SLUICE_TRY(ask_model(slots));
  hand_over(scheduler, slots);
  return {};
}

// What came since shows how good each proposal was, whether it was verified or not.
void Speculator::look_back(const DraftSlot& slot, State& state) {
  for (int i = 0; i < kNumSources; ++i) {
    Proposed& p = state.proposed[i];
    if (p.at == 0 || slot.history.size() <= p.at) continue;
    const auto came = slot.history.subspan(p.at);
    for (size_t j = 0; j < std::min(came.size(), p.tokens.size()); ++j) {
      const bool stands = came[j] == p.tokens[j];
      acceptance_.observe(Source(i), p.grade, slot.request_class, int(j), stands);
      state.own.observe(Source(i), stands);
      if (!stands) break;
    }
    p.at = 0;
  }
}

void Speculator::look_up(std::span<const DraftSlot> slots) {
  for (auto& list : proposals_) {
    list.resize(std::max(list.size(), slots.size()));
    for (size_t i = 0; i < slots.size(); ++i) list[i].tokens.clear(), list[i].distributions.clear(), list[i].grade = 0;
  }
  if (!options_.lookups) return;
  wanted_.clear();
  const int most = options_.fixed >= 0 ? options_.fixed : options_.max_drafts;
  for (const DraftSlot& slot : slots) wanted_.push_back(slot.ready || slot.soon ? std::min(slot.limit, most) : 0);
  (void)ngram_.propose(slots, wanted_, proposals_[int(Source::kNgram)]);  // lookups have no device to fail
  if (options_.suffix) (void)suffix_.propose(slots, wanted_, proposals_[int(Source::kSuffix)]);
}

Chances Speculator::chances(const State& state, Source source, int grade, int count) const {
  Chances out;
  out.count = std::min(count, sched::kMaxDrafts);
  for (int j = 0; j < out.count; ++j)
    out.of[j] = float(state.own.temper(source, acceptance_.probability(source, grade, state.request_class, j)));
  return out;
}

void Speculator::gather(std::span<const DraftSlot> slots) {
  candidates_.clear();
  for (size_t i = 0; i < slots.size(); ++i) {
    const DraftSlot& slot = slots[i];
    State& state = *rows_[i].state;
    for (const Source s : {Source::kNgram, Source::kSuffix}) {
      const Proposal& p = proposals_[int(s)][i];
      if (p.tokens.empty()) continue;
      Proposed& kept = state.proposed[int(s)];
      kept.tokens.assign(p.tokens.begin(), p.tokens.end());
      kept.grade = p.grade;
      kept.at = slot.history.size();
    }
    if (slot.limit == 0 || !(slot.ready || slot.soon)) continue;
    Candidate c;
    c.length = int64_t(slot.history.size());
    for (const Source s : {Source::kNgram, Source::kSuffix}) {
      const Proposal& p = proposals_[int(s)][i];
      const Chances found = chances(state, s, p.grade, int(p.tokens.size()));
      if (found.gain(found.count) <= c.lookup.gain(c.lookup.count)) continue;
      c.lookup = found;
      rows_[i].lookup = s;
    }
    if (model_) {
      c.model = chances(state, Source::kModel, 0, std::min(slot.limit, options_.max_drafts));
      const int behind = model_->behind(slot);
      if (behind > 1) c.catch_up_us = model_->catch_up_us(behind, c.length) / kCatchUpSteps;
    }
    rows_[i].candidate = int(candidates_.size());
    candidates_.push_back(c);
  }
}

// Of those that the draft model could propose for now, the slot that it is least behind on; -1: none.
int Speculator::cheapest(std::span<const DraftSlot> slots) const {
  int best = -1, least = 0;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (rows_[i].candidate < 0 || !slots[i].ready) continue;
    const int behind = model_->behind(slots[i]);
    if (best < 0 || behind < least) best = int(i), least = behind;
  }
  return best;
}

// What is not measured yet is hoped for, and hope is not worth a whole batch's catching up.
void Speculator::try_one(std::span<const DraftSlot> slots) {
  const int one = cheapest(slots);
  for (size_t i = 0; i < slots.size(); ++i)
    if (rows_[i].candidate >= 0 && int(i) != one && acceptance_.outcomes(Source::kModel, 0, slots[i].request_class) < kFewOutcomes)
      candidates_[size_t(rows_[i].candidate)].model.count = 0;
}

// The next step without drafts, as far as one can tell: its decodes, and of prompts as much as the step before had.
sched::StepShape Speculator::base_shape(std::span<const DraftSlot> slots, double* progress) const {
  sched::StepShape shape;
  int64_t prompts = waiting_ > 0 ? kFirstChunk : 0;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (rows_[i].candidate >= 0 || slots[i].ready) shape.add(1, int64_t(slots[i].history.size()), 1);
    else if (!slots[i].soon) prompts += int64_t(slots[i].history.size()) - slots[i].computed;
  }
  prompts = std::min<int64_t>(prompts, std::max(0, max_step_tokens_ - shape.tokens));
  if (prompt_tokens_ > 0) prompts = std::min<int64_t>(prompts, prompt_tokens_);
  *progress = double(shape.tokens) + double(prompts);
  if (prompts > 0) shape.add(int(prompts), prompts, 0);
  return shape;
}

void Speculator::decide(std::span<const DraftSlot> slots) {
  if (candidates_.empty()) return;
  Situation now;
  now.base = base_shape(slots, &now.progress);
  if (model_) try_one(slots);
  if (model_) now.pass_us = [this](int n, int64_t cached) { return model_->pass_us(n, cached); };
  control_->choose(now, candidates_, choices_);
  if (!model_) return;
  bool used = false;
  for (size_t i = 0; i < slots.size(); ++i) {
    if (rows_[i].candidate < 0 || choices_[size_t(rows_[i].candidate)].model == 0) continue;
    used = true;  // a try is no use yet, for which prompts would be followed
    if (acceptance_.outcomes(Source::kModel, 0, slots[i].request_class) >= kFewOutcomes) model_used_at_ = steps_;
  }
  if (used) return;
  if (steps_ - probed_at_ < kStepsBetweenProbes || probe_credit_us_ <= 0) return;
  // Would it pay here if it were good? Under load it would not, and is not tried.
  std::vector<Candidate> hopeful = candidates_;
  for (Candidate& c : hopeful) {
    c.model.count = options_.max_drafts;
    for (float& p : c.model.of) p = std::max(p, float(kProbeHope));
  }
  std::vector<Choice> choices(hopeful.size());
  control_->choose(now, hopeful, choices);
  if (std::any_of(choices.begin(), choices.end(), [](const Choice& c) { return c.model > 0; })) probe(slots);
}

// For the sequence that costs the draft model least.
void Speculator::probe(std::span<const DraftSlot> slots) {
  const int best = cheapest(slots);
  if (best < 0) return;
  const DraftSlot& slot = slots[size_t(best)];
  const int64_t length = int64_t(slot.history.size());
  const double price = model_->catch_up_us(model_->behind(slot), length) + kProbeDrafts * model_->pass_us(1, length);
  if (price > probe_credit_us_) return;
  probe_credit_us_ -= price;
  probed_at_ = steps_;
  acceptance_.doubt(Source::kModel, kProbeKeep);
  choices_[size_t(rows_[size_t(best)].candidate)] = {0, std::min({slot.limit, options_.max_drafts, kProbeDrafts})};
}

void Speculator::decide_fixed(std::span<const DraftSlot> slots) {
  for (size_t i = 0; i < slots.size(); ++i) {
    if (rows_[i].candidate < 0) continue;
    Choice& c = choices_[size_t(rows_[i].candidate)];
    if (model_) c.model = std::min(options_.fixed, slots[i].limit);
    else c.lookup = options_.fixed;
  }
  model_used_at_ = steps_;
}

Status Speculator::ask_model(std::span<const DraftSlot> slots) {
  if (!model_) return {};
  const bool in_use = model_used_at_ > 0 && steps_ - model_used_at_ < kModelInUse;
  wanted_.assign(slots.size(), -1);
  bool any = false;
  for (size_t i = 0; i < slots.size(); ++i) {
    const int c = rows_[i].candidate;
    if (c >= 0 && choices_[size_t(c)].model > 0 && slots[i].ready) wanted_[i] = choices_[size_t(c)].model;
    else if (c < 0 && !slots[i].ready && !slots[i].soon && !slots[i].excluded && in_use) wanted_[i] = 0;
    any = any || wanted_[i] >= 0;
  }
  if (!any) return {};
  SLUICE_TRY(model_->propose(slots, wanted_, proposals_[int(Source::kModel)]));
  counters_.passes.store(model_->passes(), std::memory_order_relaxed);
  counters_.pass_tokens.store(model_->tokens(), std::memory_order_relaxed);
  counters_.pass_us.store(uint64_t(model_->took_us()), std::memory_order_relaxed);
  return {};
}

void Speculator::hand_over(sched::Scheduler& scheduler, std::span<const DraftSlot> slots) {
  given_.clear();
  for (size_t i = 0; i < slots.size(); ++i) {
    State& state = *rows_[i].state;
    const Choice choice = rows_[i].candidate >= 0 ? choices_[size_t(rows_[i].candidate)] : Choice{};
    const Source source = choice.model > 0 ? Source::kModel : rows_[i].lookup;
    std::vector<TokenId>& tokens = proposals_[int(source)][i].tokens;
    if (choice.model > 0 && !tokens.empty()) {
      state.proposed[int(source)].tokens = tokens;
      state.proposed[int(source)].at = slots[i].history.size();
    }
    tokens.resize(std::min(tokens.size(), size_t(choice.model + choice.lookup)));
    const bool waits = choice.model + choice.lookup > 0;
    if (!slots[i].ready) tokens.clear();
    if (tokens.empty() && waits == state.waits) continue;
    state.waits = waits;
    state.given = source;
    scheduler.put_drafts(i, tokens, waits, std::move(proposals_[int(source)][i].distributions));
    given_.push_back({i, waits, tokens});
  }
}

void Speculator::learn(const sched::StepOutcome& outcome, TimeUs took_us) {
  if (took_us > 0) {
    probe_credit_us_ = std::min(kMostCreditUs, probe_credit_us_ + kProbeShare * double(took_us));
    prompt_tokens_ = outcome.shape.tokens - outcome.shape.rows;
    // Steps of decodes and drafts alone: a row for every token.
    if (price_ && prompt_tokens_ == 0) price_->observe(outcome.shape, took_us);
  }
  const auto relaxed = std::memory_order_relaxed;
  for (const sched::Verified& v : outcome.verified) {
    const auto it = states_.find(v.sequence);
    if (it == states_.end()) continue;
    const size_t source = size_t(it->second.given), cls = size_t(it->second.request_class);
    counters_.drafted[source][cls].fetch_add(uint64_t(v.drafted), relaxed);
    for (int j = 0; j < v.accepted + (v.accepted < v.drafted && !v.cut); ++j) {
      counters_.tried[source][cls][size_t(j)].fetch_add(1, relaxed);
      if (j < v.accepted) counters_.accepted[source][cls][size_t(j)].fetch_add(1, relaxed);
    }
  }
  for (const sched::Finished& f : outcome.finished) {
    states_.erase(f.sequence);
    ngram_.forget(f.sequence);
    suffix_.forget(f.sequence);
    if (model_) model_->forget(f.sequence);
  }
}

double Speculator::alpha() const {
  uint64_t tried = 0, accepted = 0;
  for (int s = 0; s < kNumSources; ++s)
    for (int c = 0; c < 2; ++c)
      for (int j = 0; j < sched::kMaxDrafts; ++j) {
        tried += counters_.tried[size_t(s)][size_t(c)][size_t(j)].load(std::memory_order_relaxed);
        accepted += counters_.accepted[size_t(s)][size_t(c)][size_t(j)].load(std::memory_order_relaxed);
      }
  return tried > 0 ? double(accepted) / double(tried) : 0;
}

}  // namespace sluice::draft
