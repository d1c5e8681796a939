#include "sched/scheduler.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace sluice::sched {
namespace {

constexpr TimeUs kUsualTtft = 2'000'000;  // when a first token is due that nobody said a time for
constexpr TimeUs kNever = std::numeric_limits<TimeUs>::max();
// A prompt may wait for its first token this long, and so many times what it would take alone; then decodes make more room, at most
// so many times as much, and twice what they take themselves.
constexpr TimeUs kPatience = 50'000;
constexpr double kPatientTimes = 2, kMostRoom = 4, kWidestRoom = 2;
constexpr double kTargetRoom = 0.9;  // of a target is filled: predictions are not exact

bool is_interactive(const Sequence* s) { return s->request_class() == RequestClass::kInteractive; }

}  // namespace

bool Scheduler::ByRank::operator()(const Sequence* a, const Sequence* b) const { return a->before(*b); }

Scheduler::Scheduler(SchedulerOptions options, std::shared_ptr<const text::Tokenizer> tokenizer)
    : options_(options), tokenizer_(std::move(tokenizer)), pool_(options.total_blocks),
      index_(options.block_tokens, options.total_blocks), next_expiry_us_(kNever) {
  SLUICE_CHECK(options_.group_tokens >= 1 && options_.block_tokens % options_.group_tokens == 0);
  SLUICE_CHECK(options_.block_tokens >= 16 && options_.block_tokens <= 256 && options_.block_tokens % 16 == 0);
  SLUICE_CHECK(options_.max_step_tokens >= options_.max_sequences && options_.max_sequences > 0 && options_.tile_tokens > 0);
  for (int i = options_.swap_blocks; i-- > 0;) swap_free_.push_back(options_.total_blocks + i);
  for (Flight& f : flights_) {
    f.plan.block_tokens = options_.block_tokens;
    f.plan.reserve(size_t(options_.max_step_tokens), size_t(options_.max_sequences), size_t(options_.total_blocks));
    f.plan.clear();
  }
}
Scheduler::~Scheduler() = default;

Status Scheduler::fits(const SchedulerOptions& o, int64_t prompt_tokens, int64_t max_tokens) {
  const int64_t wanted = prompt_tokens + max_tokens;
  if (wanted > o.max_context)
    return Error{ErrorCode::kContextLength,
                 "prompt of " + std::to_string(prompt_tokens) + " tokens plus max_tokens " + std::to_string(max_tokens) +
                     " is " + std::to_string(wanted) + ", over the limit of " + std::to_string(o.max_context) + " tokens",
                 "max_tokens"};
  const int64_t capacity = int64_t(o.total_blocks) * o.block_tokens;
  if ((wanted + o.block_tokens - 1) / o.block_tokens > o.total_blocks)
    return Error{ErrorCode::kContextLength,
                 "prompt of " + std::to_string(prompt_tokens) + " tokens plus max_tokens " + std::to_string(max_tokens) +
                     " can never fit the cache of " + std::to_string(capacity) + " tokens",
                 "max_tokens"};
  return {};
}

void Scheduler::admit(Submission submission) {
  auto request = std::make_shared<Request>();
  request->submission = std::move(submission);
  const Submission& sub = request->submission;
  SLUICE_CHECK(!sub.prompt.empty() && sub.n >= 1);
  if (tokenizer_) {
    request->banned_early = tokenizer_->end_of_generation();
    if (!sub.ignore_eos) request->stop_tokens = tokenizer_->end_of_generation();
  }
  for (TokenId t : sub.stop_token_ids) {
    request->stop_tokens.push_back(t);
    request->banned_early.push_back(t);
  }
  request->open_choices = sub.n;
  shares_.open(sub.share_key);
  waiting_tokens_ += int64_t(sub.prompt.size());
  next_expiry_us_ = std::min(next_expiry_us_, expiry_of(*request));
  const uint64_t order = next_order_++;
  Sequence* leader = nullptr;
  for (int i = 0; i < sub.n; ++i) {
    auto s = std::make_unique<Sequence>();
    s->request = request;
    s->sampling = sub.sampling;
    s->sampling.choice = i;
    s->order = order << 8 | uint64_t(i);
    s->due_us = sub.arrived_us + (sub.ttft_target_us > 0 ? sub.ttft_target_us : kUsualTtft);
    s->tokens = sub.prompt;
    s->tokens.reserve(sub.prompt.size() + size_t(sub.max_tokens));
    s->prompt_tokens = int(sub.prompt.size());
    s->leader = leader;
    s->stops = text::StopMatcher(sub.stop, sub.include_stop);
    if (i == 0) leader = s.get();
    waiting_.insert(s.get());
    request->samples.push_back(s.get());
    s->index = sequences_.size();
    sequences_.push_back(std::move(s));
  }
}

const BatchPlan& Scheduler::plan(TimeUs now) {
  SLUICE_CHECK(num_flights_ < kMaxFlights);
  making_ = &flight(num_flights_);
  making_->work.clear();
  making_->plan.clear();
  making_->shape = interactive_shape_ = {};
  budget_ = options_.max_step_tokens;
  decodes_us_ = 0;
  full_[0] = full_[1] = moved_[0] = moved_[1] = false;
  // Both are ordered by class.
  interactive_here_ = (!running_.empty() && is_interactive(running_.front())) || (!waiting_.empty() && is_interactive(*waiting_.begin()));
  if (num_flights_ == 0) wants_room_ = false;
  else if (wants_room_ || !running_fits()) return making_->plan;
  note_late_prompts(now);
  advance_running();
  admit_waiting(now);
  if (making_->work.empty()) {
    undo_copies();
    return making_->plan;
  }
  add_drafts();
  build_plan();
  ++num_flights_;
  return making_->plan;
}

// None where a token that is being drawn is sure to be the last, or must be known first.
int Scheduler::wanted_tokens(const Sequence* s) const {
  if (s->drawing > 0 && (s->generated() + s->drawing >= s->request->submission.max_tokens || s->expected() >= options_.max_context ||
                         s->draws_from_history() || s->waits_for_drafts || s->drafting > 0))
    return 0;
  return s->expected() - s->scheduled();
}

bool Scheduler::running_fits() const {
  const int B = options_.block_tokens;
  int64_t needed = 0;
  for (const Sequence* s : running_)
    needed += std::max(0, (s->scheduled() + std::min(wanted_tokens(s), options_.max_step_tokens) + B - 1) / B - int(s->blocks.size()));
  return needed <= pool_.available();
}

// Those one token short of what is known go first: a prompt's chunk takes what they leave. Of batch class, who waited longest
// for a turn goes first: not all may have room.
void Scheduler::advance_running() {
  for (const bool decodes : {true, false}) {
    order_ = running_;  // advance() may preempt
    if (interactive_here_) {  // interactive ones stand first already
      const auto batch = std::find_if_not(order_.begin(), order_.end(), is_interactive);
      std::sort(batch, order_.end(), [](const Sequence* a, const Sequence* b) { return std::pair(a->last_step, a->order) < std::pair(b->last_step, b->order); });
    }
    for (Sequence* s : order_)
      if (s->running && (wanted_tokens(s) == 1) == decodes) advance(s);
    if (decodes) note_decodes();
  }
}

void Scheduler::note_decodes() {
  decodes_us_ = interactive_shape_.tokens > 0 ? cost_.predict(interactive_shape_) : 0;
  wanted_us_ = 0;
  for (const Work& w : making_->work) {
    if (!is_interactive(w.sequence)) continue;
    const TimeUs target = w.sequence->request->submission.tpot_target_us;
    wanted_us_ = target > 0 && wanted_us_ > 0 ? std::min(wanted_us_, target) : target;
    if (target == 0) return;
  }
}

// Even gaps are worth a prompt's patience, not its starvation: where prompts come faster than the room beside decodes takes them,
// their lateness opens it until it does. Where more requests ask than may run, no room would make them timely: what runs keeps its gaps.
void Scheduler::note_late_prompts(TimeUs now) {
  more_room_ = 1;
  if (options_.prompt_room < 0 || options_.prompt_room >= kWidestRoom) return;
  const double most = std::min(kMostRoom, kWidestRoom / options_.prompt_room);
  const auto note = [&](const Sequence* s) {
    if (s->generated() > 0) return;
    const Submission& asked = s->request->submission;
    // In steps as large as there may be: what none was as large as costs more or less than is known.
    const int count = std::max(1, s->prompt_tokens - s->cached_prompt), steps = (count + options_.max_step_tokens - 1) / options_.max_step_tokens;
    StepShape whole;
    whole.add(count, s->prompt_tokens, 0);
    const double alone = steps * cost_.predict({count / steps, 1, s->prompt_tokens - count / 2, whole.pairs / steps});
    const double patience = asked.ttft_target_us > 0 ? kTargetRoom * double(asked.ttft_target_us) : double(kPatience) + kPatientTimes * alone;
    const double late = double(now - asked.arrived_us) / patience;
    more_room_ = std::clamp(late * late, more_room_, most);
  };
  for (const Sequence* s : running_)
    if (is_interactive(s)) note(s);
  if (!waiting_.empty() && is_interactive(*waiting_.begin())) note(*waiting_.begin());
  if (more_room_ > 1 && more_than_places()) more_room_ = 1;
}

// More interactive requests than may run at once.
bool Scheduler::more_than_places() const {
  auto count = std::count_if(running_.begin(), running_.end(), is_interactive);
  for (auto s = waiting_.begin(); s != waiting_.end() && is_interactive(*s) && count <= options_.max_sequences; ++s) ++count;
  return count > options_.max_sequences;
}

int Scheduler::fitting(const Sequence* s, int count) const {
  const bool interactive = is_interactive(s);
  if ((!interactive_here_ && options_.step_us == 0) || (interactive && count == 1)) return count;
  double limit = options_.step_us > 0 ? double(options_.step_us) : HUGE_VAL;
  if (wanted_us_ > 0) limit = std::min(limit, kTargetRoom * double(wanted_us_));
  else if (options_.prompt_room >= 0 && decodes_us_ > 0) limit = std::min(limit, std::max(double(options_.prompt_us), (1 + options_.prompt_room * more_room_) * decodes_us_));
  if (!interactive && interactive_here_) limit = std::min(limit, (1 + options_.batch_room) * cost_.predict(interactive_shape_));
  const auto fits = [&](int n) {
    StepShape shape = making_->shape;
    shape.add(n, s->scheduled() + n, s->scheduled() + n == s->expected());
    return cost_.predict(shape) <= limit;
  };
  if (cost_.predict(making_->shape) == 0 || fits(count)) return count;  // nothing is known yet, or all is well
  int most = 0;
  for (int step = 1 << 20; step > 0; step /= 2)
    if (most + step < count && fits(most + step)) most += step;
  // Whatever the bound, each class moves on: a prompt by a token, batch work by one sequence. More than a token of a long prompt
  // can cost what all decodes do.
  return std::max(most, moved_[int(s->request_class())] ? 0 : 1);
}

int Scheduler::whole_tiles(int count) const {
  const int beyond = (making_->shape.tokens + count) % options_.tile_tokens;
  return beyond <= count / 4 ? count - beyond : count;  // where there are few tokens, weights are what costs
}

void Scheduler::advance(Sequence* s) {
  const int wanted = wanted_tokens(s), cls = int(s->request_class());
  int count = std::min(wanted, budget_);
  if (count <= 0 || (full_[cls] && (count > 1 || !is_interactive(s)))) return;
  if (const int fits = fitting(s, count); fits < count) {
    full_[cls] = true;
    count = fits;
  }
  if (count <= 0) return;
  if (count < wanted) count = whole_tiles(count);
  const int B = options_.block_tokens;
  while (int(s->blocks.size()) * B < s->scheduled() + count) {
    if (allocate(s)) continue;
    // Out of blocks: a shorter chunk will do; with none at all someone makes room, if need be s itself.
    const int room = int(s->blocks.size()) * B - s->scheduled();
    if (room > 0) {
      count = room;
      break;
    }
    Sequence* victim = victim_below(s);
    preempt(victim ? victim : s);
    if (!victim) return;
  }
  budget_ -= count;
  making_->work.push_back({s, count});
  if (count > 1 || !is_interactive(s)) moved_[cls] = true;
  add_shape(making_->work.back());
}

void Scheduler::add_shape(const Work& w) {
  const int end = w.sequence->scheduled() + w.count, rows = end - w.drafts == w.sequence->expected() ? 1 + w.drafts : 0;
  making_->shape.add(w.count, end, rows);
  if (is_interactive(w.sequence)) interactive_shape_.add(w.count, end, rows);
}

bool Scheduler::allocate(Sequence* s) {
  std::optional<kv::BlockId> evicted;
  auto block = pool_.allocate(&evicted);
  if (!block) return false;
  if (evicted) index_.erase(*evicted);
  s->blocks.push_back(*block);
  return true;
}

Sequence* Scheduler::victim_below(const Sequence* s) const {
  if (running_.empty()) return nullptr;
  Sequence* last = running_.back();
  return s->before(*last) ? last : nullptr;
}

void Scheduler::preempt(Sequence* s) {
  SLUICE_CHECK(s->flights == 0);
  ++counters_.preemptions;
  s->drafts.clear();
  std::erase(running_, s);
  std::erase_if(making_->work, [&](const Work& w) {
    if (w.sequence == s) budget_ += w.count;
    return w.sequence == s;
  });
  making_->shape = interactive_shape_ = {};
  for (const Work& w : making_->work) add_shape(w);
  if (worth_swapping(s)) swap_out(s);
  release_blocks(s);
  s->running = false;
  waiting_.insert(s);
}

// The tail goes first, so that eviction takes a prefix's end before its beginning.
void Scheduler::release_blocks(Sequence* s) {
  // A copy into a block that is given back must not happen: the block may get a new owner in this very step.
  std::erase_if(making_->plan.copies, [&](const CopyPair& c) {
    return std::find(s->blocks.begin(), s->blocks.end(), c.to) != s->blocks.end() && pool_.references(c.to) == 1;
  });
  for (size_t i = s->blocks.size(); i-- > 0;) pool_.release(s->blocks[i]);
  s->blocks.clear();
  s->keys.clear();
  s->computed = 0;
}

// A sample waits while its leader is still in the prompt they share: it will take the leader's blocks.
Sequence* Scheduler::next_waiting() const {
  Sequence* best = nullptr;
  double least = HUGE_VAL;
  for (Sequence* s : waiting_) {
    if (best && s->request_class() != best->request_class()) break;
    if (s->leader && s->leader->running && s->leader->computed < s->prompt_tokens - 1) continue;
    const double served = shares_.num_active() > 1 ? shares_.served(s->request->submission.share_key) : 0;
    if (served < least) {
      best = s;
      least = served;
    }
    if (shares_.num_active() <= 1) break;
  }
  return best;
}

void Scheduler::admit_waiting(TimeUs now) {
  while (budget_ > 0) {
    Sequence* s = next_waiting();
    if (!s || full_[int(s->request_class())]) return;  // those behind it are of its class, or of a lesser one
    // Interactive work displaces batch work, for a place as for blocks; equals wait their turn.
    while (!try_start(s, now)) {
      Sequence* victim = victim_below(s);
      if (!victim || victim->request_class() == s->request_class()) return;
      wants_room_ = num_flights_ > 0;
      if (wants_room_) return;
      preempt(victim);
    }
  }
}

bool Scheduler::try_start(Sequence* s, TimeUs now) {
  if (int(running_.size()) >= options_.max_sequences) return false;
  const int B = options_.block_tokens;
  const bool alone = running_.empty() && making_->work.empty() && num_flights_ == 0;
  if (!s->swapped.empty() && (s->known() + B) / B > pool_.available()) {
    if (!alone) return false;
    drop_swapped(s);
  }
  if (!s->swapped.empty()) swap_in(s);
  else if (!fork_from_leader(s)) s->computed = reuse_prefix(s);
  // Room for all that is known now and the token after, or a newcomer would soon displace others or itself.
  const int wanted = (s->known() + 1 + B - 1) / B - int(s->blocks.size());
  if (wanted > pool_.available() && !alone) {
    release_blocks(s);
    return false;
  }
  waiting_.erase(s);
  if (!s->request->begun) waiting_tokens_ -= int64_t(s->request->submission.prompt.size());
  counters_.begun += !s->request->begun;
  s->request->begun = true;
  s->running = true;
  running_.insert(std::lower_bound(running_.begin(), running_.end(), s, ByRank{}), s);
  if (!s->admitted_once) {
    s->admitted_once = true;
    s->admitted_us = now;
    s->cached_prompt = s->computed;
    counters_.prefix_query_tokens += uint64_t(s->prompt_tokens);
    counters_.prefix_hit_tokens += uint64_t(s->computed);
    const size_t most = size_t((s->tokens.capacity() + size_t(B) - 1) / size_t(B));  // so that decoding allocates nothing
    s->blocks.reserve(most);
    s->keys.reserve(most);
  }
  advance(s);
  return true;
}

int Scheduler::reuse_prefix(Sequence* s) {
  s->keys.clear();
  if (!options_.prefix_cache || s->request->submission.prompt_logprobs >= 0) return 0;
  const int B = options_.block_tokens;
  kv::PrefixKey parent = kv::PrefixIndex::root(s->request->submission.cache_salt);
  int covered = 0;
  // The last known token is always computed: its logits are what the step is for.
  while (covered + B <= s->known() - 1) {
    const std::span<const int32_t> tokens(s->tokens.data() + covered, size_t(B));
    const kv::PrefixKey key = index_.extend(parent, tokens);
    auto block = index_.find(parent, key, tokens);
    if (!block) break;
    pool_.retain(*block);
    s->blocks.push_back(*block);
    s->keys.push_back(key);
    parent = key;
    covered += B;
  }
  return covered;
}

bool Scheduler::fork_from_leader(Sequence* s) {
  Sequence* leader = s->leader;
  const int shared = (s->prompt_tokens - 1) / options_.group_tokens * options_.group_tokens;  // the leader may have closed the group behind
  if (!leader || !leader->running || s->known() != s->prompt_tokens || leader->computed < shared || shared == 0 ||
      s->request->submission.prompt_logprobs >= 0)
    return false;
  const int B = options_.block_tokens;
  const int full = shared / B, partial = shared % B;
  if (partial && pool_.available() == 0) return false;
  for (int i = 0; i < full; ++i) {
    pool_.retain(leader->blocks[i]);
    s->blocks.push_back(leader->blocks[i]);
  }
  const size_t num_keys = std::min(leader->keys.size(), size_t(full));
  s->keys.assign(leader->keys.begin(), leader->keys.begin() + std::ptrdiff_t(num_keys));
  if (partial) {
    SLUICE_CHECK(allocate(s));
    making_->plan.copies.push_back({leader->blocks[full], s->blocks.back()});
  }
  s->computed = shared;
  return true;
}

void Scheduler::build_plan() {
  BatchPlan& plan = making_->plan;
  plan.step = counters_.steps + uint64_t(num_flights_);
  for (const Work& w : making_->work) {
    Sequence* s = w.sequence;
    const int index = plan.num_sequences(), begin = s->scheduled(), end = begin + w.count;
    for (int p = begin; p < end; ++p) {
      const int row = plan.num_tokens();
      plan.token_ids.push_back(p < s->known() ? s->tokens[size_t(p)] : w.drafts > 0 ? s->drafts[size_t(p - s->known())] : -1 - s->drawing_row);
      plan.positions.push_back(p);
      plan.sequence_of.push_back(index);
      const int wanted = s->request->submission.prompt_logprobs;
      const bool scores = wanted >= 0 && s->sampling.choice == 0 && p + 1 < s->prompt_tokens && p >= s->prompt_scored;
      if (scores) {
        OutputRow r;
        r.token_row = row;
        r.sequence = index;
        r.samples = false;
        r.target = s->tokens[size_t(p) + 1];
        r.num_logprobs = wanted;
        plan.rows.push_back(r);
      }
    }
    plan.kv_len.push_back(end);
    plan.draft_len.push_back(w.drafts);
    plan.query_begin.push_back(plan.num_tokens());
    const int blocks = (end + options_.block_tokens - 1) / options_.block_tokens;
    plan.block_ids.insert(plan.block_ids.end(), s->blocks.begin(), s->blocks.begin() + blocks);
    plan.block_begin.push_back(int32_t(plan.block_ids.size()));
    s->planned += w.count;
    s->last_step = plan.step;
    ++s->flights;
    if (end - w.drafts == s->expected()) add_draws(s, index, w.drafts);
  }
  making_->shape.rows = int(plan.rows.size());
}

void Scheduler::usage(int64_t* allocated_slots, int64_t* live_tokens) const {
  *allocated_slots = *live_tokens = 0;
  for (const Sequence* s : running_) {
    *allocated_slots += int64_t(s->blocks.size()) * options_.block_tokens;
    *live_tokens += s->scheduled();
  }
}

void Scheduler::validate() const {
  pool_.validate();
  std::vector<int> references(size_t(pool_.total()), 0);
  for (const auto& s : sequences_) {
    SLUICE_CHECK(s->running == (waiting_.find(s.get()) == waiting_.end()));
    SLUICE_CHECK(s->running || s->blocks.empty());
    SLUICE_CHECK(s->cached_prompt <= s->known() && s->computed <= s->known());
    SLUICE_CHECK(s->planned >= 0 && s->drawing >= 0 && s->drawing <= s->flights + s->drafting && s->flights <= num_flights_);
    SLUICE_CHECK(s->drafting == 0 || (s->flights == 1 && s->drafting <= int(s->drafts.size())));
    SLUICE_CHECK(s->scheduled() <= s->expected());
    const int slack = int(s->blocks.size()) * options_.block_tokens - s->scheduled();
    SLUICE_CHECK(slack >= 0 && slack < options_.block_tokens);  // waste stays under one block a sequence
    for (kv::BlockId b : s->blocks) ++references[size_t(b)];
  }
  for (const auto& s : ended_) {
    SLUICE_CHECK(s->flights > 0 && s->flights <= num_flights_);
    for (kv::BlockId b : s->blocks) ++references[size_t(b)];
  }
  for (int b = 0; b < pool_.total(); ++b) SLUICE_CHECK(references[size_t(b)] == pool_.references(b));
  std::vector<bool> kept(size_t(options_.swap_blocks), false);
  size_t num_kept = swap_free_.size();
  const auto keep = [&](kv::BlockId b) {
    SLUICE_CHECK(b >= pool_.total() && b < pool_.total() + options_.swap_blocks && !kept[size_t(b - pool_.total())]);
    kept[size_t(b - pool_.total())] = true;
  };
  for (const kv::BlockId b : swap_free_) keep(b);
  for (const auto& s : sequences_) {
    for (const kv::BlockId b : s->swapped) keep(b);
    num_kept += s->swapped.size();
    SLUICE_CHECK(s->swapped.empty() || !s->running);
  }
  SLUICE_CHECK(num_kept == size_t(options_.swap_blocks));
  SLUICE_CHECK(running_.size() + waiting_.size() == sequences_.size());
  SLUICE_CHECK(std::is_sorted(running_.begin(), running_.end(), ByRank{}));
}

}  // namespace sluice::sched
