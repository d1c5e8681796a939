// The conformance list on the CUDA backend's code for devices below 9.0, whose kernels run here on the emulator (tests/device/emulator.h): 8.0, and one of 8.9 that
// has 99 KiB of shared memory and few processors. A share of the cases, which SLUICE_SEED picks, as it does the order of threads; all with SLUICE_ALL_CASES=1.
#include <gtest/gtest.h>

#include <cstdlib>
#include <ostream>
#include <string>
#include <vector>

#include "cuda_runtime_api.h"
#include "lab/kernel_check.h"

namespace sluice::lab {
namespace {

constexpr uint64_t kShare = 16;  // one of so many,
constexpr size_t kFew = 100;     // where there are more cases than this
// These take a minute each here, and the kernel is what others call, too.
bool is_slow(const KernelCase& c) { return c.name.starts_with("chunks and threads"); }

uint64_t number_of(const char* name, uint64_t otherwise) {
  const char* text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

struct Part {
  int device;
  const KernelCheck* check;
};
void PrintTo(const Part& p, std::ostream* to) { *to << p.check->name << " on device " << p.device; }
std::vector<Part> parts() {
  std::vector<Part> all;
  for (int device = 0; device < int(std::size(emulator::kDevices)); ++device)
    for (const KernelCheck* check : checks_table()) all.push_back({device, check});
  return all;
}

class OnHost : public testing::TestWithParam<Part> {};
TEST_P(OnHost, Holds) {
  const char* why = nullptr;
  const kernels::KernelTable* table = kernels::cuda_kernels(GetParam().device, &why);
  ASSERT_TRUE(table) << why;
  const uint64_t seed = number_of("SLUICE_SEED", 1);
  uint64_t number = seed + uint64_t(GetParam().device);  // devices have different cases
  const std::vector<KernelCase> cases = GetParam().check->cases();
  const bool all = cases.size() <= kFew || number_of("SLUICE_ALL_CASES", 0);
  for (const KernelCase& c : cases) {
    const bool mine = ++number % kShare == 0 && !is_slow(c);
    if (!all && !mine) continue;
    emulator::launch_seed = seed * 7919 + number;
    const Verdict v = run_case(c, *table);
    EXPECT_TRUE(v.passed()) << c.name << ": " << (v.fault.empty() ? "error " + std::to_string(v.error) : v.fault);
  }
}
INSTANTIATE_TEST_SUITE_P(, OnHost, testing::ValuesIn(parts()), [](const auto& info) {
  return std::string(info.param.check->name) + "_" + std::to_string(emulator::kDevices[info.param.device].capability);
});

}  // namespace
}  // namespace sluice::lab
