#include "base/long_slice.h"

#include <gtest/gtest.h>
#include <linux/sched/types.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <thread>

namespace sluice {
namespace {

sched_attr attributes() {
  sched_attr a{};
  EXPECT_EQ(::syscall(SYS_sched_getattr, 0, &a, sizeof a, 0), 0);
  return a;
}

TEST(LongSlice, ChangesTheSliceOfTheCallingThreadAlone) {
  const sched_attr before = attributes();
  std::thread([&] {
    take_long_slices();
    const sched_attr after = attributes();
    EXPECT_EQ(after.sched_policy, before.sched_policy);
    EXPECT_EQ(after.sched_nice, before.sched_nice);
    EXPECT_EQ(after.sched_priority, before.sched_priority);
    EXPECT_GE(after.sched_runtime, before.sched_runtime);  // or as it was, where the system does not hear
  }).join();
  EXPECT_EQ(attributes().sched_runtime, before.sched_runtime);
}

}  // namespace
}  // namespace sluice
