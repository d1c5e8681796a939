#include "lab/hardware.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>

#include <nlohmann/json.hpp>

#include "base/rng.h"
#include "lab/machine.h"

namespace sluice::lab {
namespace {

// Shares of the sheets' peaks that large steps reach in practice; the simulator's figures for presets are no better than these.
constexpr double kBandwidthShare = 0.85, kComputeShare = 0.65;

Hardware preset(const char* name, const char* source, double gb_s, double tflop_s, double overhead_us, double gib) {
  return {name, source, gb_s * kBandwidthShare, tflop_s * 1000 * kComputeShare, overhead_us, uint64_t(gib * (1u << 30)), true, {}};
}

Result<Hardware> read_file(const std::string& path) {
  std::ifstream in(path);
  if (!in) return Error{ErrorCode::kNotFound, path + ": neither h100, h200, cpu nor a readable file", "--hardware"};
  const nlohmann::json j = nlohmann::json::parse(in, nullptr, false);
  if (!j.is_object()) return bad_file(path + ": no JSON object");
  Hardware h;
  h.name = path;
  const auto number = [&](const char* key, double& out) {
    if (j.contains(key) && j[key].is_number()) out = j[key].get<double>();
    return std::isfinite(out) && out >= 0;
  };
  double memory = 0;
  if (!number("bandwidth_gb_s", h.bandwidth_gb_s) || !number("gflop_s", h.gflop_s) || !number("overhead_us", h.overhead_us) || !number("request_us", h.request_us) || !number("memory_bytes", memory) || memory > 1e15)
    return bad_file(path + ": bandwidth_gb_s, gflop_s, overhead_us, request_us and memory_bytes must be numbers, 0 or more");
  h.memory_bytes = uint64_t(memory);
  for (const auto& [key, out] : {std::pair{"name", &h.name}, {"source", &h.source}}) {
    if (j.contains(key) && !j[key].is_string()) return bad_file(path + ": " + key + " is no string");
    *out = j.value(key, *out);
  }
  if (j.contains("accelerator") && !j["accelerator"].is_boolean()) return bad_file(path + ": accelerator is neither true nor false");
  h.accelerator = j.value("accelerator", false);
  if (j.contains("step_cost")) {
    const nlohmann::json& list = j["step_cost"];
    if (!list.is_array() || !std::all_of(list.begin(), list.end(), [](const auto& v) { return v.is_number(); }))
      return bad_file(path + ": step_cost is no list of numbers");
    h.step_cost = list.get<std::vector<double>>();
    if (!sched::StepCost().restore(h.step_cost)) return bad_file(path + ": step_cost is not what a server of this version keeps");
  } else if (h.bandwidth_gb_s == 0 || h.gflop_s == 0) {
    return bad_file(path + ": bandwidth_gb_s and gflop_s must be above 0, or step_cost be given");
  }
  return h;
}

}  // namespace

Result<Hardware> find_hardware(const std::string& name, int threads) {
  if (name == "h100") return preset("h100", "NVIDIA H100 SXM data sheet: 3.35 TB/s, 989 TFLOP/s bf16 dense, 80 GB", 3350, 989, 60, 74);
  if (name == "h200") return preset("h200", "NVIDIA H200 data sheet: 4.8 TB/s, 989 TFLOP/s bf16 dense, 141 GB", 4800, 989, 60, 131);
  if (name != "cpu") return read_file(name);
  const MachineCeilings m = measure_machine(threads, size_t{256} << 20);
  Hardware h = preset("cpu", "measured now on this machine", m.read_gb_s, m.int8_gop_s / 1000, 300, 0);
  h.memory_bytes = uint64_t{8} << 30;
  return h;
}

exec::CostModel cost_model(const Hardware& h, const ModelSizes& m, uint64_t seed) {
  if (!h.step_cost.empty()) {
    auto learned = std::make_shared<sched::StepCost>();
    learned->restore(h.step_cost);
    return [learned, rng = Rng(seed, 0x5bead)](const sched::StepShape& s) mutable { return learned->predict(s) * learned->spread(double(rng.uniform())); };
  }
  const double bytes_us = h.bandwidth_gb_s * 1e3, flops_us = h.gflop_s * 1e3;  // a microsecond
  return [=](const sched::StepShape& s) {
    const double dense = std::max(double(m.weight_bytes) / bytes_us, 2 * (m.layer_parameters * s.tokens + m.head_parameters * s.rows) / flops_us);
    const double attention = std::max(double(s.cached_tokens) * double(m.kv_bytes_per_token) / bytes_us, 4 * double(s.pairs) * m.attention_width / flops_us);
    return h.overhead_us + dense + attention;
  };
}

}  // namespace sluice::lab
