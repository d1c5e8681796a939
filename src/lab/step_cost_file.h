// Where a server keeps what StepCost learned, by model, backend and threads: in $SLUICE_HOME/step_cost (default
// ~/.cache/sluice/step_cost). The file is a hardware description that the simulator takes (lab/hardware.h).
#pragma once
#include <string>
#include <vector>

#include "lab/loaded_model.h"

namespace sluice::lab {

// pool: of several; empty: there is one.
std::string step_cost_path(const LoadedModel& model, const std::string& pool);
// Empty where there is none, or none that can be used.
std::vector<double> read_step_cost(const std::string& path);
// Written under another name and renamed; a failure costs what was learned, no more.
void write_step_cost(const std::string& path, const std::vector<double>& state, bool accelerator);

}  // namespace sluice::lab
