// StepGate: engines that share cores run one at a time, a whole step each, so that workers never outnumber cores. Time goes by
// weight: whoever had least of it for its weight is next, and is waited for a little while it prepares its step; an engine with nothing
// to do is not waited for, and earns nothing meanwhile (start-time fairness, as in virtual-clock scheduling).
// Threads: any; each member by one.
#pragma once
#include <condition_variable>
#include <memory>
#include <mutex>
#include <vector>

#include "base/clock.h"

namespace sluice::engine {

class StepGate {
 public:
  explicit StepGate(std::vector<double> weights);   // > 0, one a member

  void enter(int member);                 // returns when the member may run a step
  void leave(int member, TimeUs took_us); // its step is done; another is on its way
  void rest(int member);                  // it has nothing to run for now, or ends

 private:
  struct Member {
    double weight = 1, used = 0;          // microseconds for its weight
    bool here = false, waits = false;
    std::condition_variable turn;
  };
  bool may_run(int member, bool patient) const;
  void wake_next();
  std::mutex mutex_;
  std::vector<std::unique_ptr<Member>> members_;
  int running_ = -1;
};

}  // namespace sluice::engine
