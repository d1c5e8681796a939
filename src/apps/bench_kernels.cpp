#include "apps/bench_kernels.h"

#include <cstdio>
#include <iostream>
#include <vector>

#include <nlohmann/json.hpp>

#include "apps/machine_json.h"
#include "lab/kernel_check.h"
#include "lab/loaded_model.h"

namespace sluice::apps {
namespace {

using Json = nlohmann::ordered_json;

Result<std::vector<const kernels::KernelTable*>> tables(const KernelBenchOptions& o) {
  if (o.device != "cpu" || !o.isa.empty() || !o.check) {
    lab::LoadOptions chosen;
    chosen.device = o.device;
    chosen.isa = o.isa;
    SLUICE_ASSIGN(const kernels::KernelTable* t, lab::choose_kernels(chosen));
    return std::vector<const kernels::KernelTable*>{t};
  }
  std::vector<const kernels::KernelTable*> all{kernels::reference_kernels()};
  for (const char* isa : kernels::kCpuIsas)
    if (const kernels::KernelTable* t = kernels::cpu_kernels(isa, nullptr)) all.push_back(t);
  return all;
}

// One row a check and table: how many cases, which fail, the worst error of what is allowed.
int check_all(const std::vector<const kernels::KernelTable*>& all, const KernelBenchOptions& o) {
  Json rows = Json::array();
  int failed = 0;
  for (const kernels::KernelTable* t : all)
    for (const lab::KernelCheck* check : lab::checks_table()) {
      int cases = 0, wrong = 0;
      double worst = 0;
      for (const lab::KernelCase& c : check->cases()) {
        if ((check->name + (" " + c.name)).find(o.filter) == std::string::npos) continue;
        const lab::Verdict v = lab::run_case(c, *t);
        ++cases;
        if (v.error > worst) worst = v.error;
        if (v.passed()) continue;
        ++wrong;
        std::fprintf(stderr, "%s %s %s: %s\n", t->name, check->name, c.name.c_str(),
                     v.fault.empty() ? ("error " + std::to_string(v.error) + " of what is allowed").c_str() : v.fault.c_str());
      }
      failed += wrong;
      rows.push_back({{"backend", t->name}, {"name", check->name}, {"cases", cases}, {"failed", wrong}, {"worst_error", worst}, {"tolerance", check->tolerance}});
      if (!o.json) std::printf("%-10s %-10s %4d cases, %d failed, worst error %.2f of what is allowed\n", t->name, check->name, cases, wrong, worst);
    }
  if (o.json) std::cout << Json{{"rows", rows}}.dump() << "\n";
  return failed ? 1 : 0;
}

}  // namespace

Result<int> bench_kernels(const KernelBenchOptions& o) {
  SLUICE_ASSIGN(const auto all, tables(o));
  if (o.check) return check_all(all, o);
  const kernels::KernelTable& t = *all.front();
  const lab::MachineCeilings m = t.host_memory ? lab::measure_machine(o.threads, size_t{192} << 20) : lab::measure_device(t);
  Json rows = Json::array();
  if (!o.json) std::printf("%s, %d threads\n%-44s %10s %21s %8s %9s\n", t.name, o.threads, "", "us", "min..max", "GB/s", "GFLOP/s");
  for (const lab::KernelSpeed& s : lab::kernel_speeds(t, o.threads, o.filter, o.repeats)) {
    if (!o.json) std::printf("%-44s %10.1f %10.1f..%-9.1f %8.1f %9.1f\n", s.name.c_str(), s.us, s.us_min, s.us_max, s.gb_s, s.gflop_s);
    rows.push_back({{"name", s.name}, {"us", s.us}, {"us_min", s.us_min}, {"us_max", s.us_max}, {"gb_s", s.gb_s}, {"gflop_s", s.gflop_s},
                    {"pct_of_bandwidth", m.read_gb_s > 0 ? 100 * s.gb_s / m.read_gb_s : 0},
                    {"pct_of_compute", m.compute_gflop_s() > 0 ? 100 * s.gflop_s / m.compute_gflop_s() : 0}});
  }
  if (o.json) std::cout << Json{{"rows", rows}, {"machine", machine_json(m)}}.dump() << "\n";
  return 0;
}

}  // namespace sluice::apps
