// Which code a device takes, and what it can do by it: known without a device.
#include "kernels/cuda/capability.h"

#include <gtest/gtest.h>

namespace sluice::kernels::cuda {
namespace {

constexpr size_t kKb = 1024;

TEST(Capability, TheLoadedCodeDecides) {
  EXPECT_TRUE(capability(90, 90, 227 * kKb).hopper);
  for (const int code : {80, 89}) {  // a build without code for 9.0, on 9.0
    const Capability c = capability(90, code, 227 * kKb);
    EXPECT_FALSE(c.hopper);
    EXPECT_EQ(c.code, code);
  }
}

TEST(Capability, NoOtherDeviceTakesHoppersKernels) {
  for (const int device : {80, 86, 87, 89, 100, 120}) {
    const Capability c = capability(device, 80, 99 * kKb);
    EXPECT_FALSE(c.hopper) << device;
    EXPECT_EQ(c.code, 80);
  }
  EXPECT_FALSE(capability(100, 90, 227 * kKb).hopper);
}

TEST(Capability, InputsTakeWhatIsLeft) {
  const Capability small = capability(89, 89, 99 * kKb), large = capability(90, 90, 227 * kKb);
  EXPECT_EQ(shared_left(small, 90 * kKb, 96 * kKb), 9 * kKb);
  EXPECT_EQ(shared_left(small, 100 * kKb, 96 * kKb), 0u);
  EXPECT_EQ(shared_left(large, 100 * kKb, 96 * kKb), 96 * kKb);
}

}  // namespace
}  // namespace sluice::kernels::cuda
