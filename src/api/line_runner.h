// LineRunner: runs the lines of batches through the endpoints that HTTP requests take, several at once. One thread calls it,
// save notify(), which any may.
#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "api/endpoint.h"
#include "store/job_store.h"

namespace sluice::api {

struct LineDone {
  store::Line line;
  store::LineResult result;      // when it was run
  bool refused = false;          // the engine would not take it now (full, draining): it was not run, and may be later
};

class LineRunner {
 public:
  LineRunner(std::shared_ptr<Context> context, int concurrency);
  ~LineRunner();                 // gives up what runs

  int room() const { return concurrency_ - int(slots_.size()); }
  bool idle() const { return slots_.empty(); }
  void start(store::Line line);
  // Waits until something happened, notify() was called or `at_most` is over; returns the lines that have ended.
  std::vector<LineDone> wait(std::chrono::microseconds at_most);
  void notify();
  // Gives up the lines for which this is true: no result comes for them. Returns them.
  std::vector<store::Line> drop(const std::function<bool(const store::Line&)>& which);
  // Ids of the jobs whose lines are running.
  std::vector<std::string> jobs() const;

 private:
  struct Signal {                // outlives the runner in wake functions
    std::mutex mutex;
    std::condition_variable ready;
    bool raised = false;
    void raise();
  };
  struct Slot;
  bool poll(Slot& slot);

  std::shared_ptr<Context> context_;
  int concurrency_;
  std::shared_ptr<Signal> signal_ = std::make_shared<Signal>();
  std::vector<std::unique_ptr<Slot>> slots_;
};

// A line of a result file. response: a JSON object, or empty; error likewise.
std::string result_line(const std::string& custom_id, std::string_view response, std::string_view error);

}  // namespace sluice::api
