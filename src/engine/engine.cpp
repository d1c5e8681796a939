#include "engine/engine.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/long_slice.h"

namespace sluice::engine {
namespace {

constexpr std::chrono::microseconds kIdleWait{100'000};
constexpr uint64_t kStepsBetweenKeeps = 4096;
const Error kStopped{ErrorCode::kUnavailable, "the server is shutting down", {}};

}  // namespace

Engine::Engine(EngineOptions options, std::shared_ptr<const text::Tokenizer> tokenizer,
               std::unique_ptr<exec::Executor> executor, const Clock* clock)
    : options_(options), tokenizer_(std::move(tokenizer)), executor_(std::move(executor)), clock_(clock),
      scheduler_(options.scheduler, tokenizer_), inbox_(options.max_queue) {
  stats_.blocks_total = scheduler_.pool().total();
  const exec::KvBytes kv = executor_->kv_bytes();
  stats_.kv_key_bytes = int64_t(kv.keys);
  stats_.kv_value_bytes = int64_t(kv.values);
  stats_.kv_scale_bytes = int64_t(kv.scales);
  stats_.blocks_free = scheduler_.pool().num_free();
  last_progress_us_ = clock_->now_us();
  if (!options_.step_cost.empty()) scheduler_.cost().restore(options_.step_cost);  // a state it does not know is no loss
  if (options_.recorder) options_.recorder->begin(options_.scheduler, scheduler_.cost().num_observed() ? scheduler_.cost().state() : std::vector<double>{});
  if (options_.speculator) stats_.drafts = &options_.speculator->counters();
  SLUICE_CHECK(!options_.gate || executor_->depth() == 1);
  thread_ = std::thread([this] { run(); });
}

Engine::~Engine() {
  stop_ = true;
  inbox_.close();
  thread_.join();
}

Status Engine::submit(sched::Submission submission) {
  if (faulted_) return Error{ErrorCode::kUnavailable, "the engine has faulted: " + health().reason, {}};
  if (draining_ || stop_) return Error{ErrorCode::kUnavailable, "the server is draining and takes no new requests", {}};
  SLUICE_TRY(sched::Scheduler::fits(options_.scheduler, int64_t(submission.prompt.size()), submission.max_tokens));
  submission.id = next_id_.fetch_add(1);
  submission.arrived_us = clock_->now_us();
  open_.fetch_add(1);
  const int64_t tokens = int64_t(submission.prompt.size());
  inbox_tokens_.fetch_add(tokens);
  Status room = room_for(submission);
  if (room.ok() && inbox_.try_push(std::move(submission))) return {};
  inbox_tokens_.fetch_sub(tokens);
  open_.fetch_sub(1);
  stats_.rejected.fetch_add(1, std::memory_order_relaxed);
  if (stop_) return kStopped;
  return room.ok() ? Error{ErrorCode::kOverloaded, "the queue is full: " + std::to_string(options_.max_queue) + " requests are waiting", {}} : room.error();
}

// inbox_tokens_ counts s already.
Status Engine::room_for(const sched::Submission& s) const {
  const int64_t waiting = num_waiting(), limit = int64_t(options_.max_queue);
  if (waiting >= limit) return Error{ErrorCode::kOverloaded, "the queue is full: " + std::to_string(limit) + " requests are waiting", {}};
  const int64_t tokens = inbox_tokens_.load() + stats_.waiting_tokens.load(std::memory_order_relaxed);
  if (options_.max_queue_tokens > 0 && tokens > options_.max_queue_tokens && waiting > 0)
    return Error{ErrorCode::kOverloaded, "the queue is full: with this prompt of " + std::to_string(s.prompt.size()) + " tokens " + std::to_string(tokens) +
                     " would be waiting, and the limit is " + std::to_string(options_.max_queue_tokens), {}};
  return {};
}

int64_t Engine::num_waiting() const {
  return int64_t(inbox_.size()) + stats_.waiting.load(std::memory_order_relaxed);
}

void Engine::poke() { inbox_.poke(); }
void Engine::drain() { draining_ = true; }
bool Engine::idle() const { return open_.load() == 0; }
int64_t Engine::kv_tokens() const {
  return int64_t(options_.scheduler.total_blocks) * options_.scheduler.block_tokens;
}

Health Engine::health() const {
  if (faulted_) return {false, "a device fault ended the engine"};
  const TimeUs still = clock_->now_us() - last_progress_us_.load();
  if (open_.load() > 0 && still > options_.watchdog_us)
    return {false, std::to_string(open_.load()) + " requests wait and no step ended for " + std::to_string(still / 1'000'000) + " s"};
  return {};
}

int Engine::retry_after_s() const {
  const double waiting = double(num_waiting()), rate = stats_.drain_per_s.load(std::memory_order_relaxed);
  return int(std::clamp(rate > 0 ? std::ceil(waiting / rate) : waiting, 1.0, 120.0));  // a queue that has not moved: a second each
}

// With an executor of depth 2 the next step is planned and submitted while the one before runs.
void Engine::run() {
  take_long_slices();
  std::vector<sched::Submission> arrived;
  while (!stop_) {
    const bool resting = scheduler_.idle() && scheduler_.num_in_flight() == 0;
    inbox_.drain(arrived, resting ? kIdleWait : std::chrono::microseconds(0));
    if (resting) last_progress_us_ = clock_->now_us();  // nothing waited until now
    rested_ |= resting;
    admit(arrived);
    const TimeUs now = clock_->now_us();
    reap_cancelled(now);
    if (Status s = options_.gate && !scheduler_.idle() ? step_at_gate() : step_forward(now); !s.ok()) return fault(s.error());
    if (options_.gate && scheduler_.idle()) options_.gate->rest(options_.gate_member);
  }
  if (options_.gate) options_.gate->rest(options_.gate_member);
  keep_cost();
  inbox_.drain(arrived, std::chrono::microseconds(0));
  admit(arrived);
  scheduler_.fail_all(kStopped, outcome_);
  publish(0);
}

void Engine::reap_cancelled(TimeUs now) {
  scheduler_.reap_cancelled(now, outcome_);
  if (options_.recorder && !outcome_.finished.empty()) {
    std::vector<uint64_t> ids;
    for (const sched::Finished& f : outcome_.finished) ids.push_back(f.request_id);
    options_.recorder->cancelled(now, ids);
  }
  if (options_.speculator) options_.speculator->learn(outcome_, 0);
  publish(0);
}

Status Engine::propose() {
  if (!options_.speculator) return {};
  SLUICE_TRY(options_.speculator->prepare(scheduler_));
  if (options_.recorder) options_.recorder->drafts(options_.speculator->given());
  return {};
}

Status Engine::step_forward(TimeUs now) {
  if (!scheduler_.idle() && scheduler_.num_in_flight() < executor_->depth()) {
    SLUICE_TRY(propose());
    if (options_.speculator) now = clock_->now_us(), rested_ = true;  // drafting is no part of what the step costs
    const sched::BatchPlan& plan = scheduler_.plan(now);
    if (options_.recorder) options_.recorder->planned(now, plan.empty() ? 0 : plan.hash());
    if (!plan.empty()) {
      // What the host does between two steps lengthens the second: it is part of what a step costs.
      begun_us_[scheduler_.num_in_flight() - 1] = rested_ ? now : last_ended_us_;
      rested_ = false;
      SLUICE_TRY(executor_->submit(plan));
      if (scheduler_.num_in_flight() < executor_->depth()) return {};
    }
  }
  if (scheduler_.num_in_flight() > 0) {
    SLUICE_TRY(executor_->collect(result_));
    const TimeUs ended = clock_->now_us();
    // A step that was queued behind another began when that one ended.
    const TimeUs took = ended - std::max(begun_us_[0], last_ended_us_);
    last_ended_us_ = ended;
    std::copy(std::begin(begun_us_) + 1, std::end(begun_us_), std::begin(begun_us_));
    if (options_.recorder) options_.recorder->committed(ended, took, result_);
    scheduler_.commit(result_, ended, took, outcome_);
    if (options_.speculator) options_.speculator->learn(outcome_, took);
    publish(ended);
    if (scheduler_.counters().steps % kStepsBetweenKeeps == 0) keep_cost();
  } else if (!scheduler_.idle()) {  // a breach of the progress invariant: stay alive and let the watchdog say so
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return {};
}

// What arrived while others had their turn is in this step.
Status Engine::step_at_gate() {
  options_.gate->enter(options_.gate_member);
  std::vector<sched::Submission> arrived;
  inbox_.drain(arrived, std::chrono::microseconds(0));
  admit(arrived);
  const TimeUs began = clock_->now_us();
  rested_ = true;  // the others' turns are no part of what this step costs
  Status done = step_forward(began);
  options_.gate->leave(options_.gate_member, clock_->now_us() - began);
  return done;
}

void Engine::keep_cost() {
  if (options_.recorder) options_.recorder->flush();
  if (options_.keep_step_cost && scheduler_.cost().num_observed() > 0) options_.keep_step_cost(scheduler_.cost().kept());
}

void Engine::admit(std::vector<sched::Submission>& arrived) {
  for (auto& s : arrived) {
    if (options_.recorder) options_.recorder->submission(s, tokenizer_ ? tokenizer_->end_of_generation() : std::vector<int32_t>{});
    inbox_tokens_.fetch_sub(int64_t(s.prompt.size()));
    scheduler_.admit(std::move(s));
  }
  arrived.clear();
}

void Engine::publish(TimeUs ended_us) {
  const auto relaxed = std::memory_order_relaxed;
  if (ended_us > 0) {
    last_progress_us_ = ended_us;
    stats_.steps.fetch_add(1, relaxed);
  }
  stats_.prompt_tokens.fetch_add(uint64_t(outcome_.computed_prompt_tokens), relaxed);
  stats_.generated_tokens.fetch_add(uint64_t(outcome_.generated_tokens), relaxed);
  for (TimeUs us : outcome_.first_token_waits_us) stats_.time_to_first_token.observe(double(us) * 1e-6);
  for (TimeUs us : outcome_.queue_waits_us) stats_.queue_time.observe(double(us) * 1e-6);
  for (const sched::Finished& f : outcome_.finished) count_end(f);
  stats_.expired.fetch_add(uint64_t(outcome_.expired), relaxed);
  if (ended_us > 0) {
    drain_rate_.note(ended_us, int(scheduler_.counters().begun - begun_), scheduler_.num_waiting() > 0);
    begun_ = scheduler_.counters().begun;
    stats_.drain_per_s.store(drain_rate_.per_second(), relaxed);
  }
  const sched::Counters& c = scheduler_.counters();
  stats_.preemptions.store(c.preemptions, relaxed);
  stats_.swaps.store(c.swaps, relaxed);
  stats_.prefix_query_tokens.store(c.prefix_query_tokens, relaxed);
  stats_.prefix_hit_tokens.store(c.prefix_hit_tokens, relaxed);
  if (ended_us > 0 && scheduler_.counters().steps % 16 == 0) stats_.step_error_p90.store(scheduler_.cost().error_p90(), relaxed);
  stats_.running.store(scheduler_.num_running(), relaxed);
  stats_.waiting.store(scheduler_.num_waiting(), relaxed);
  stats_.waiting_tokens.store(scheduler_.waiting_tokens(), relaxed);
  stats_.blocks_free.store(scheduler_.pool().num_free(), relaxed);
  stats_.blocks_held.store(scheduler_.pool().num_held(), relaxed);
  stats_.blocks_cached.store(scheduler_.pool().num_cached(), relaxed);
  int64_t slots = 0, live = 0;
  scheduler_.usage(&slots, &live);
  stats_.allocated_slot_steps.fetch_add(uint64_t(slots), relaxed);
  stats_.live_token_steps.fetch_add(uint64_t(live), relaxed);
  if (const int64_t n = scheduler_.num_running(); n > 0) {
    const int64_t waste = (slots - live + n - 1) / n;
    if (waste > stats_.max_waste_tokens_per_sequence.load(relaxed)) stats_.max_waste_tokens_per_sequence.store(waste, relaxed);
  }
  int64_t ended = 0;
  for (const sched::Finished& f : outcome_.finished) ended += f.last_choice;
  for (sched::Delivery& d : outcome_.deliveries)
    if (d.sink) d.sink->push(std::move(d.event));
  outcome_.clear();
  open_.fetch_sub(ended);
}

void Engine::count_end(const sched::Finished& f) {
  const auto relaxed = std::memory_order_relaxed;
  switch (f.reason) {
    case sched::FinishReason::kStop: stats_.finished_stop.fetch_add(1, relaxed); break;
    case sched::FinishReason::kLength: stats_.finished_length.fetch_add(1, relaxed); break;
    case sched::FinishReason::kCancelled: stats_.finished_cancelled.fetch_add(1, relaxed); break;
    default: stats_.finished_error.fetch_add(1, relaxed); break;
  }
  if (f.finished_us > 0) stats_.end_to_end.observe(double(f.finished_us - f.arrived_us) * 1e-6);
  const double between_us = f.generated_tokens > 1 ? double(f.finished_us - f.first_token_us) / (f.generated_tokens - 1) : 0;
  if (f.generated_tokens > 1) stats_.time_per_output_token.observe(between_us * 1e-6);
  if (f.reason == sched::FinishReason::kCancelled || (f.ttft_target_us == 0 && f.tpot_target_us == 0)) return;
  const bool answered = f.generated_tokens > 0;
  const bool late = f.ttft_target_us > 0 && (!answered || f.first_token_us - f.arrived_us > f.ttft_target_us);
  const bool slow = f.tpot_target_us > 0 && (!answered || between_us > double(f.tpot_target_us));
  stats_.ttft_missed.fetch_add(late, relaxed);
  stats_.tpot_missed.fetch_add(slow, relaxed);
  (late || slow ? stats_.targets_missed : stats_.targets_met).fetch_add(1, relaxed);
}

void Engine::fault(const Error& error) {
  if (options_.gate) options_.gate->rest(options_.gate_member);
  if (options_.recorder) options_.recorder->flush();
  faulted_ = true;
  std::fprintf(stderr, "%s\nin flight:\n%s", error.message.c_str(), executor_->describe_in_flight().c_str());
  std::vector<sched::Submission> arrived;
  inbox_.close();
  inbox_.drain(arrived, std::chrono::microseconds(0));
  admit(arrived);
  scheduler_.fail_all(Error{ErrorCode::kUnavailable, error.message, {}}, outcome_);
  publish(0);
}

}  // namespace sluice::engine
