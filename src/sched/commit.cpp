// Scheduler, second half: what a step's result means - tokens, stops, limits, ends.
#include <algorithm>
#include <limits>

#include "sched/scheduler.h"

namespace sluice::sched {

void Scheduler::commit(const StepResult& result, TimeUs now, TimeUs took_us, StepOutcome& outcome) {
  SLUICE_CHECK(num_flights_ > 0 && result.rows.size() == flight(0).plan.rows.size());
  Flight& landed = flight(0);
  first_flight_ = (first_flight_ + 1) % kMaxFlights;
  --num_flights_;
  ++counters_.steps;
  if (took_us > 0) cost_.observe(landed.shape, took_us);
  outcome.shape = landed.shape;
  const std::vector<OutputRow>& rows = landed.plan.rows;
  size_t row = 0;
  for (size_t i = 0; i < landed.work.size(); ++i) {
    Sequence* s = landed.work[i].sequence;
    const size_t begin = row;
    while (row < rows.size() && rows[row].sequence == int32_t(i)) ++row;
    const bool ended = std::any_of(ended_.begin(), ended_.end(), [&](const auto& e) { return e.get() == s; });
    if (!ended) {
      const int before = s->computed;
      s->computed += landed.work[i].count - landed.work[i].drafts;  // drafts count when they are accepted
      s->planned -= landed.work[i].count;
      const int of_prompt = std::max(0, std::min(s->computed, s->prompt_tokens) - before);
      outcome.computed_prompt_tokens += of_prompt;
      shares_.charge(s->request->submission.share_key, of_prompt, 0, s->request->submission.share_weight);
      index_full_blocks(s);
    }
    land(s);
    size_t r = begin;
    for (; r < row && !ended && !rows[r].samples; ++r) report_prompt_score(s, result.rows[r], outcome);
    if (r < row && !ended) take_draws(s, landed.work[i].drafts, std::span(result.rows).subspan(r, row - r), now, outcome);
  }
}

void Scheduler::land(Sequence* s) {
  if (--s->flights > 0) return;
  const auto at = std::find_if(ended_.begin(), ended_.end(), [&](const auto& e) { return e.get() == s; });
  if (at == ended_.end()) return;
  release_blocks(s);
  ended_.erase(at);
}

void Scheduler::index_full_blocks(Sequence* s) {
  if (!options_.prefix_cache) return;
  const int B = options_.block_tokens;
  kv::PrefixKey parent = s->keys.empty() ? kv::PrefixIndex::root(s->request->submission.cache_salt) : s->keys.back();
  for (int i = int(s->keys.size()); (i + 1) * B <= s->computed; ++i) {
    const std::span<const int32_t> tokens(s->tokens.data() + i * B, size_t(B));
    const kv::PrefixKey key = index_.extend(parent, tokens);
    if (index_.insert(parent, key, tokens, s->blocks[i])) pool_.set_indexed(s->blocks[i], true);
    s->keys.push_back(key);
    parent = key;
  }
}

void Scheduler::report_prompt_score(Sequence* s, const sample::SampledToken& token, StepOutcome& outcome) {
  TokenEvent e;
  e.choice = s->sampling.choice;
  e.has_token = e.is_prompt = true;
  e.sample = token;
  e.cached_tokens = s->cached_prompt;
  ++s->prompt_scored;
  outcome.deliveries.push_back({s->request->submission.sink, std::move(e)});
}

bool Scheduler::take_token(Sequence* s, const sample::SampledToken& token, TimeUs now, StepOutcome& outcome) {
  const Submission& sub = s->request->submission;
  TokenEvent e;
  e.choice = s->sampling.choice;
  e.cached_tokens = s->cached_prompt;
  if (sub.max_tokens == 0) {  // the prompt alone was wanted
    e.finish = FinishReason::kLength;
    finish(s, std::move(e), now, outcome);
    return false;
  }
  if (s->generated() == 0) {
    s->first_token_us = now;
    outcome.first_token_waits_us.push_back(now - sub.arrived_us);
  }
  s->last_token_us = now;
  s->tokens.push_back(token.token);
  ++outcome.generated_tokens;
  shares_.charge(sub.share_key, 0, 1, sub.share_weight);
  e.has_token = true;
  e.sample = token;
  const auto& stops = s->request->stop_tokens;
  if (s->generated() >= sub.min_tokens && std::find(stops.begin(), stops.end(), token.token) != stops.end()) {
    e.finish = FinishReason::kStop;
    e.stop_token = token.token;
    if (sub.include_stop) e.text = s->stops.push(bytes_of(token.token, true));
  } else {
    e.text = s->stops.push(bytes_of(token.token, sub.keep_special));
    if (s->stops.matched()) {
      e.finish = FinishReason::kStop;
      e.stop_string = s->stops.matched_stop();
    }
  }
  if (e.finish == FinishReason::kNone && (s->generated() >= sub.max_tokens || s->known() >= options_.max_context))
    e.finish = FinishReason::kLength;
  if (e.finish != FinishReason::kNone) {
    e.text += s->stops.finish();
    finish(s, std::move(e), now, outcome);
    return false;
  }
  outcome.deliveries.push_back({sub.sink, std::move(e)});
  return true;
}

// A head may have rows beyond the vocabulary (padding): they have no text.
std::string_view Scheduler::bytes_of(TokenId token, bool keep_special) const {
  if (!tokenizer_ || token >= tokenizer_->size()) return {};
  return tokenizer_->token_bytes(token, keep_special);
}

void Scheduler::finish(Sequence* s, TokenEvent event, TimeUs now, StepOutcome& outcome) {
  const Submission& sub = s->request->submission;
  Finished f;
  f.request_id = sub.id;
  f.arrived_us = sub.arrived_us;
  f.admitted_us = s->admitted_us;
  f.first_token_us = s->first_token_us;
  f.finished_us = now;
  f.prompt_tokens = s->prompt_tokens;
  f.sequence = s->order;
  f.generated_tokens = s->generated();
  f.reason = event.finish;
  f.ttft_target_us = sub.ttft_target_us;
  f.tpot_target_us = sub.tpot_target_us;
  f.last_choice = --s->request->open_choices == 0;
  if (f.last_choice) shares_.close(sub.share_key);
  event.drafted = s->drafted;
  event.accepted = s->accepted;
  if (f.last_choice && !s->request->begun) waiting_tokens_ -= int64_t(sub.prompt.size());
  outcome.finished.push_back(f);
  if (s->admitted_once) outcome.queue_waits_us.push_back(s->admitted_us - sub.arrived_us);
  outcome.deliveries.push_back({sub.sink, std::move(event)});
  forget(s);
}

void Scheduler::forget(Sequence* s) {
  std::erase(running_, s);
  waiting_.erase(s);
  drop_swapped(s);
  std::erase(s->request->samples, s);
  for (Sequence* other : s->request->samples)
    if (other->leader == s) other->leader = nullptr;
  std::unique_ptr<Sequence> own = std::move(sequences_[s->index]);
  if (s->index + 1 < sequences_.size()) {
    sequences_[s->index] = std::move(sequences_.back());
    sequences_[s->index]->index = s->index;
  }
  sequences_.pop_back();
  if (s->flights > 0) ended_.push_back(std::move(own));
  else release_blocks(s);
}

int Scheduler::reap_cancelled(TimeUs now, StepOutcome& outcome) {
  int ended = 0;
  for (auto& s : sequences_) {
    Request& r = *s->request;
    if (!r.cancelled && r.submission.cancelled && r.submission.cancelled->load(std::memory_order_relaxed)) {
      r.cancelled = true;
      ++ended;
    }
  }
  const bool some_expired = now >= next_expiry_us_ && expire(now);
  if (ended == 0 && !some_expired) return 0;
  // Only now: a flag that is set while the samples of a request are looked at ends all of them together.
  std::vector<Sequence*> gone;
  for (auto& s : sequences_)
    if (s->request->cancelled || s->request->expired) gone.push_back(s.get());
  for (Sequence* s : gone) {
    TokenEvent e;
    e.choice = s->sampling.choice;
    e.finish = FinishReason::kCancelled;
    if (s->request->expired) {
      e.finish = FinishReason::kError;
      e.error = {ErrorCode::kOverloaded, "the request waited " + std::to_string((now - s->request->submission.arrived_us) / 1000) +
                     " ms and was not begun; it may wait " + std::to_string(s->request->submission.queue_timeout_us / 1000) + " ms", {}};
      if (s->sampling.choice == 0) {
        ++outcome.expired;
        ++ended;
      }
    }
    finish(s, std::move(e), now, outcome);
  }
  return ended;
}

TimeUs Scheduler::expiry_of(const Request& r) const {
  return r.submission.queue_timeout_us > 0 && !r.begun ? r.submission.arrived_us + r.submission.queue_timeout_us : std::numeric_limits<TimeUs>::max();
}

bool Scheduler::expire(TimeUs now) {
  bool any = false;
  next_expiry_us_ = std::numeric_limits<TimeUs>::max();
  for (auto& s : sequences_) {
    const TimeUs at = expiry_of(*s->request);
    if (now >= at) any = s->request->expired = true;
    else next_expiry_us_ = std::min(next_expiry_us_, at);
  }
  return any;
}

void Scheduler::fail_all(const Error& error, StepOutcome& outcome) {
  num_flights_ = 0;
  for (auto& s : ended_) release_blocks(s.get());
  ended_.clear();
  for (auto& s : sequences_) s->flights = 0;
  while (!sequences_.empty()) {
    Sequence* s = sequences_.back().get();
    TokenEvent e;
    e.choice = s->sampling.choice;
    e.finish = FinishReason::kError;
    e.error = error;
    finish(s, std::move(e), 0, outcome);
  }
}

}  // namespace sluice::sched
