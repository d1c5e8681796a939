// Engine: one thread that owns the scheduler, the cache's bookkeeping and the executor. The edge talks to it through a
// bounded inbox (submit) and each request's ResponseSink. submit, cancel, health and stats may be called from any thread.
#pragma once
#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/queue.h"
#include "base/result.h"
#include "draft/speculator.h"
#include "engine/drain_rate.h"
#include "engine/recorder.h"
#include "engine/stats.h"
#include "engine/step_gate.h"
#include "exec/executor.h"
#include "sched/request.h"
#include "sched/scheduler.h"

namespace sluice::engine {

struct EngineOptions {
  sched::SchedulerOptions scheduler;
  size_t max_queue = 512;                // submissions waiting in the inbox and the scheduler together
  int64_t max_queue_tokens = 0;          // and tokens of their prompts; 0: as many as they have. One request may always wait
  TimeUs watchdog_us = 30'000'000;       // work waits and nothing ran for this long: unhealthy
  std::vector<double> step_cost;         // StepCost::kept of an earlier run; empty: nothing is known yet
  std::shared_ptr<Recorder> recorder;    // writes down every input of the scheduler; or none
  std::shared_ptr<draft::Speculator> speculator;  // proposes drafts; or none. The engine thread's from here on
  std::shared_ptr<StepGate> gate;        // shared with engines on the same cores; or none. For executors of depth 1
  int gate_member = 0;
  std::function<void(const std::vector<double>&)> keep_step_cost;  // gets what is to be kept now and then, on the engine thread; or none
};

struct Health {
  bool healthy = true;
  std::string reason;                    // why not
};

class Engine {
 public:
  // tokenizer may be null (stop strings and text are then unavailable).
  Engine(EngineOptions options, std::shared_ptr<const text::Tokenizer> tokenizer, std::unique_ptr<exec::Executor> executor,
         const Clock* clock);
  ~Engine();  // stops at once; waiting requests get kUnavailable
  Engine(const Engine&) = delete;

  // Hands a request to the engine thread. Errors, all at once: kOverloaded when the queue is full, kUnavailable when
  // draining or faulted, kContextLength when it can never fit the cache. On error the sink is never called.
  Status submit(sched::Submission submission);
  // Wakes the engine so that a set `cancelled` flag is seen now.
  void poke();
  // Takes no new requests; those admitted are finished. Returns at once; idle() tells when the last one is done.
  void drain();
  bool idle() const;
  Health health() const;
  // The device failed: what waited or streamed has its error, nothing new is taken, and what was in flight is on stderr.
  bool faulted() const { return faulted_; }
  Stats& stats() { return stats_; }
  const Stats& stats() const { return stats_; }
  // Tokens of cache in all.
  int64_t kv_tokens() const;
  int retry_after_s() const;             // seconds until the queue of now is begun, at the rate at which it drains; 1..120

 private:
  void run();
  int64_t num_waiting() const;           // in the inbox and in the scheduler
  Status room_for(const sched::Submission& s) const;
  void count_end(const sched::Finished& f);
  Status step_forward(TimeUs now);       // plans and submits if it may, else collects
  Status propose();                      // drafts for the next plan
  Status step_at_gate();
  void reap_cancelled(TimeUs now);
  void keep_cost();
  void admit(std::vector<sched::Submission>& arrived);
  void publish(TimeUs ended_us);         // what outcome_ holds, which is empty then; ended_us: of the step it is of; 0: of none
  void fault(const Error& error);

  EngineOptions options_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::unique_ptr<exec::Executor> executor_;
  const Clock* clock_;
  sched::Scheduler scheduler_;           // engine thread only
  BoundedQueue<sched::Submission> inbox_;
  Stats stats_;
  sched::StepResult result_;             // of the step collected last
  sched::StepOutcome outcome_;
  TimeUs begun_us_[sched::Scheduler::kMaxFlights] = {};  // of the steps in flight, oldest first
  TimeUs last_ended_us_ = 0;
  DrainRate drain_rate_;                 // engine thread only
  uint64_t begun_ = 0;                   // requests, when it was last told
  std::atomic<int64_t> inbox_tokens_{0};
  bool rested_ = true;                   // nothing was there to do since the last step
  std::atomic<uint64_t> next_id_{1};
  std::atomic<int64_t> open_{0};         // accepted and not yet finished
  std::atomic<bool> draining_{false}, stop_{false}, faulted_{false};
  std::atomic<TimeUs> last_progress_us_{0};
  std::thread thread_;
};

}  // namespace sluice::engine
