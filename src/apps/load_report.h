// A load's report as JSON and for people: the same keys and lines whether a server was measured or simulated.
#pragma once
#include <nlohmann/json.hpp>

#include "lab/load_generator.h"

namespace sluice::apps {

nlohmann::ordered_json load_report_json(const lab::LoadReport& report);
void print_percentiles(const lab::LoadReport& report);

}  // namespace sluice::apps
