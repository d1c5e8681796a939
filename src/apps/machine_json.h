// The machine's measured ceilings as JSON, as every bench prints them.
#pragma once
#include <nlohmann/json.hpp>

#include "lab/machine.h"

namespace sluice::apps {

inline nlohmann::ordered_json machine_json(const lab::MachineCeilings& m) {
  return {{"cpu", m.cpu}, {"threads", m.threads}, {"read_gb_s", m.read_gb_s}, {"read_gb_s_one_thread", m.read_gb_s_one},
          {"f32_gflop_s", m.f32_gflop_s}, {"int8_gop_s", m.int8_gop_s}, {"bf16_gflop_s", m.bf16_gflop_s}, {"busy_fraction", m.busy_fraction}};
}

}  // namespace sluice::apps
