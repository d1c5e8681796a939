// DrainRate: how many requests leave the queue a second, over the last kWindow seconds in which anything happened. Pure: time
// comes in. One thread.
#pragma once
#include <array>
#include <cstdint>

#include "base/clock.h"

namespace sluice::engine {

class DrainRate {
 public:
  static constexpr int kWindow = 16;  // seconds

  // So many were begun, and whether others still wait. A time in which nobody waits says nothing of how fast a queue drains.
  void note(TimeUs now, int left, bool others_wait);
  // Requests a second; 0: nothing is known.
  double per_second() const;

 private:
  struct Second {
    double busy_s = 0;
    int left = 0;
  };
  std::array<Second, kWindow> seconds_{};  // a ring of busy seconds
  int at_ = 0;
  TimeUs last_us_ = 0;
  bool waited_ = false;
};

}  // namespace sluice::engine
