// Time as a value the caller passes in. Sluice's pure folders never ask for it; the engine reads it from a Clock.
#pragma once
#include <chrono>
#include <cstdint>

namespace sluice {

// Microseconds since an arbitrary fixed point; monotonic.
using TimeUs = int64_t;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimeUs now_us() const noexcept = 0;  // any thread
};

class SteadyClock final : public Clock {
 public:
  TimeUs now_us() const noexcept override {
    return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }
};

// A clock that tests move by hand.
class ManualClock final : public Clock {
 public:
  TimeUs now_us() const noexcept override { return now_us_; }
  void advance(TimeUs us) { now_us_ += us; }

 private:
  TimeUs now_us_ = 0;
};

}  // namespace sluice
