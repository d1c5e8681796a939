// BatchRunner: the thread that runs the store's jobs on the engine: checks new ones, claims lines, records results, ends jobs.
// What it was doing when the process died is found in the store by the next one.
#pragma once
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "api/line_runner.h"

namespace sluice::api {

class BatchRunner {
 public:
  // store must outlive this.
  BatchRunner(std::shared_ptr<Context> context, store::JobStore* store, BatchOptions options);
  ~BatchRunner();              // records what has ended, gives back what has not
  void notify();               // something changed in the store; any thread

 private:
  using Time = std::chrono::steady_clock::time_point;
  void run();
  void look_around();          // once a poll_us: what others have done, and what time has
  void validate_new();
  Status validate(const store::Job& job);
  void end_jobs();
  void drop_ended();
  void claim();
  void take(std::vector<LineDone>&& done);
  void record();
  bool report(const Status& status);   // whether it is ok; says so on standard error when that changes

  std::shared_ptr<Context> context_;
  store::JobStore* store_;
  BatchOptions options_;
  LineRunner lines_;
  std::vector<LineDone> unrecorded_;   // ended, and the store has not taken it yet
  std::string last_error_;
  Time next_look_{}, next_claim_{}, next_renewal_{}, next_purge_{};
  std::atomic<bool> stop_{false}, notified_{false};
  std::thread thread_;
};

}  // namespace sluice::api
