#include "base/long_slice.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <thread>

namespace sluice {
namespace {

struct Attributes {
  uint32_t size, policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime_ns, deadline_ns, period_ns;
};

Attributes attributes() {
  Attributes a{};
  EXPECT_EQ(::syscall(SYS_sched_getattr, 0, &a, sizeof a, 0), 0);
  return a;
}

TEST(LongSlice, ChangesTheSliceOfTheCallingThreadAlone) {
  const Attributes before = attributes();
  std::thread([&] {
    take_long_slices();
    const Attributes after = attributes();
    EXPECT_EQ(after.policy, before.policy);
    EXPECT_EQ(after.nice, before.nice);
    EXPECT_EQ(after.priority, before.priority);
    EXPECT_GE(after.runtime_ns, before.runtime_ns);  // or as it was, where the system does not hear
  }).join();
  EXPECT_EQ(attributes().runtime_ns, before.runtime_ns);
}

}  // namespace
}  // namespace sluice
