#include "lab/kernel_check.h"

#include <algorithm>
#include <chrono>
#include <exception>

#include "lab/on_backend.h"

namespace sluice::lab {
namespace {

double seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

constexpr int kMaxSpeedTokens = 2048, kMaxSpeedDim = 16384;
constexpr double kRepeatSeconds = 0.03;  // at least so long a repeat: clocks and launches must not count

}  // namespace

Verdict run_case(const KernelCase& c, const kernels::KernelTable& table) {
  try {
    return c.check(table);
  } catch (const std::exception& e) {
    return {0, e.what()};
  }
}

std::vector<KernelSpeed> kernel_speeds(const kernels::KernelTable& table, int threads, const std::string& filter, int repeats) {
  std::vector<KernelSpeed> out;
  for (const KernelCheck* check : checks_table()) {
    if (!check->speeds) continue;
    for (const SpeedCase& c : check->speeds()) {
      const std::string name = std::string(check->name) + " " + c.name;
      if (name.find(filter) == std::string::npos) continue;
      const ContextPtr context = make_context(table, threads, kMaxSpeedTokens, kMaxSpeedDim, false);
      const SpeedRun run = c.prepare(table, context.get());
      if (!run.call) continue;
      const auto timed = [&](int calls) {
        const double begin = seconds();
        for (int i = 0; i < calls; ++i) run.call();
        table.synchronize(context.get());
        return seconds() - begin;
      };
      timed(1);
      const int calls = std::clamp(int(kRepeatSeconds / std::max(timed(1), 1e-6)), 1, 10000);
      std::vector<double> us;
      for (int i = 0; i < repeats; ++i) us.push_back(timed(calls) / calls * 1e6);
      std::sort(us.begin(), us.end());
      const double median = us[us.size() / 2];
      out.push_back({name, median, run.bytes / median * 1e-3, run.flops / median * 1e-3, us.front(), us.back()});
    }
  }
  return out;
}

}  // namespace sluice::lab
