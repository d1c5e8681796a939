#include "engine/step_gate.h"

#include <algorithm>
#include <chrono>
#include <limits>

#include "base/result.h"

namespace sluice::engine {
namespace {

constexpr std::chrono::milliseconds kPatience{2};  // with one whose turn it is and who does not come

}  // namespace

StepGate::StepGate(std::vector<double> weights) {
  for (const double w : weights) {
    SLUICE_CHECK(w > 0);
    members_.push_back(std::make_unique<Member>());
    members_.back()->weight = w;
  }
}

// Nobody runs, and nobody who is here (patient) or waits (not) had less. Equals: the first.
bool StepGate::may_run(int member, bool patient) const {
  if (running_ >= 0) return false;
  for (int i = 0; i < int(members_.size()); ++i) {
    const Member& m = *members_[size_t(i)];
    const double mine = members_[size_t(member)]->used;
    if (i != member && (patient ? m.here : m.waits) && (m.used < mine || (m.used == mine && i < member))) return false;
  }
  return true;
}

void StepGate::wake_next() {
  for (int i = 0; i < int(members_.size()); ++i)
    if (members_[size_t(i)]->waits && may_run(i, true)) members_[size_t(i)]->turn.notify_one();
}

void StepGate::enter(int member) {
  std::unique_lock lock(mutex_);
  Member& me = *members_[size_t(member)];
  if (!me.here) {
    double least = std::numeric_limits<double>::infinity();
    for (const auto& m : members_)
      if (m->here) least = std::min(least, m->used);
    if (least < std::numeric_limits<double>::infinity()) me.used = std::max(me.used, least);
    me.here = true;
  }
  me.waits = true;
  while (!me.turn.wait_for(lock, kPatience, [&] { return may_run(member, true); }))
    if (may_run(member, false)) break;
  me.waits = false;
  running_ = member;
}

void StepGate::leave(int member, TimeUs took_us) {
  std::lock_guard lock(mutex_);
  SLUICE_CHECK(running_ == member);
  running_ = -1;
  members_[size_t(member)]->used += double(took_us) / members_[size_t(member)]->weight;
  wake_next();
}

void StepGate::rest(int member) {
  std::lock_guard lock(mutex_);
  if (!members_[size_t(member)]->here) return;
  members_[size_t(member)]->here = false;
  wake_next();
}

}  // namespace sluice::engine
