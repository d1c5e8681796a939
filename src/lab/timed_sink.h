// Sinks that note when tokens came, and a gate that opens when every request has ended: for drivers of an Engine in the same
// process. A request's Times are written by the engine thread alone until the gate counts its end.
#pragma once
#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "sched/request.h"

namespace sluice::lab {

struct Times {
  TimeUs submitted = 0, last = 0;
  std::vector<TimeUs> tokens;
  std::string error;
};

class Gate {
 public:
  explicit Gate(int n) : open_(n) {}
  void one_ended() {
    std::lock_guard lock(mutex_);
    if (--open_ == 0) done_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return open_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  int open_;
};

class TimedSink final : public sched::ResponseSink {
 public:
  TimedSink(Times* times, Gate* gate, const Clock* clock) : times_(times), gate_(gate), clock_(clock) {}
  void push(sched::TokenEvent&& e) noexcept override {
    const TimeUs now = clock_->now_us();
    if (e.has_token) times_->tokens.push_back(now);
    if (e.finish == sched::FinishReason::kNone) return;
    if (e.finish == sched::FinishReason::kError) times_->error = e.error.message;
    times_->last = now;
    gate_->one_ended();
  }

 private:
  Times* times_;
  Gate* gate_;
  const Clock* clock_;
};

}  // namespace sluice::lab
