#include "engine/drain_rate.h"

namespace sluice::engine {

void DrainRate::note(TimeUs now, int left, bool others_wait) {
  if (waited_ && now > last_us_) {
    seconds_[size_t(at_)].busy_s += double(now - last_us_) * 1e-6;
    seconds_[size_t(at_)].left += left;
    if (seconds_[size_t(at_)].busy_s >= 1) {
      at_ = (at_ + 1) % kWindow;
      seconds_[size_t(at_)] = {};
    }
  }
  last_us_ = now;
  waited_ = others_wait;
}

double DrainRate::per_second() const {
  double busy_s = 0;
  int left = 0;
  for (const Second& s : seconds_) {
    busy_s += s.busy_s;
    left += s.left;
  }
  return busy_s > 0 ? left / busy_s : 0;
}

}  // namespace sluice::engine
